"""Options of torch's configuration modules that this process has set, and a flag of the processor."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from trtcache.lowering.operators import number_in_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

_WRITTEN_BY_BUILDS = ("aot_inductor.metadata",)  # torch/_inductor/compile_fx.py stores the last package's device there


def flushes_denormals() -> bool:
    """Return whether ``torch.set_flush_denormal`` is on in this thread; torch does not tell."""
    return sys.float_info.min * 0.5 == 0.0


def overrides(config: ModuleType | None) -> Iterator[tuple[str, object]]:
    """Yield options whose value differs from both their default and their environment variable, but not passes.

    ``passes`` yields those: what Inductor's own cache ignores in its configuration, it treats in another way there.
    """
    ignored = (*getattr(config, "_cache_config_ignore_prefix", ()), *_WRITTEN_BY_BUILDS)
    return _changed_options(config, lambda name: not name.startswith(ignored))


def passes(config: ModuleType | None) -> Iterator[tuple[str, str]]:
    """Yield options for passes over graphs that are set and that ``overrides`` leaves out, with what identifies them.

    That is ``uuid()``, as for ``torch._inductor.custom_graph_pass.CustomGraphPass``. A function without it is another
    one in each process, since what it does depends on more than its own code.
    """
    ignored = tuple(getattr(config, "_cache_config_ignore_prefix", ()))
    for name, value in _changed_options(config, lambda name: "pass" in name and name.startswith(ignored)):
        kind, uuid = type(value), getattr(value, "uuid", None)
        found = uuid() if callable(uuid) else value if kind in {str, bool, int} else None
        token = number_in_process(value) if found is None else repr(found)
        yield name, f"{kind.__module__}.{kind.__qualname__} {token}"


def _changed_options(config: ModuleType | None, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, object]]:
    """Yield options with a name that is wanted and a value that is not a default."""
    entries: Mapping[str, Any] = getattr(config, "_config", {})
    if not entries:
        return
    from torch.utils import _config_module

    unset: object = _config_module._UNSET_SENTINEL
    for name, entry in entries.items():
        if not is_wanted(name):
            continue
        override = entry.user_override
        value = override.get() if isinstance(override, ContextVar) else override  # torch 2.11: the value itself
        if value is unset:
            continue
        defaults = (entry.default, entry.env_value_default, entry.env_value_force)
        if value not in [default for default in defaults if default is not unset]:
            yield name, value
