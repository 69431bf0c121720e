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
    ignored = (*getattr(config, "_cache_config_ignore_prefix", ()), *_WRITTEN_BY_BUILDS)
    for name, entry in entries.items():
        override = entry.user_override
        value = override.get() if isinstance(override, ContextVar) else override  # torch 2.11: the value itself
        defaults = (entry.default, entry.env_value_default, entry.env_value_force)
        differs = value not in [default for default in defaults if not _is_unset(default)]
        if not _is_unset(value) and not name.startswith(ignored) and differs:
            yield name, value


def _is_unset(value: object) -> bool:
    from torch.utils import _config_module

    return value is _config_module._UNSET_SENTINEL
