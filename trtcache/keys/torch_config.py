"""Options of torch's configuration modules that this process has set."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

_WRITTEN_BY_BUILDS = ("aot_inductor.metadata",)  # torch/_inductor/compile_fx.py stores the last package's device there


def overrides(config: ModuleType | None) -> Iterator[tuple[str, object]]:
    """Yield options whose value differs from both their default and their environment variable."""
    entries: Mapping[str, Any] = getattr(config, "_config", {})
    if not entries:
        return
    from torch.utils import _config_module

    unset: object = _config_module._UNSET_SENTINEL
    ignored = (*getattr(config, "_cache_config_ignore_prefix", ()), *_WRITTEN_BY_BUILDS)
    for name, entry in entries.items():
        override = entry.user_override
        value = override.get() if isinstance(override, ContextVar) else override  # torch 2.11: the value itself
        if value is unset or name.startswith(ignored):
            continue
        defaults = (entry.default, entry.env_value_default, entry.env_value_force)
        if value not in [default for default in defaults if default is not unset]:
            yield name, value
