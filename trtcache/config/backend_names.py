"""Backends by name: built-in ones from a table, others from the entry point ``trtcache.backends``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trtcache.config.environment import installed_version
from trtcache.errors import BackendUnavailableError, SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import EntryPoint

BUILT_IN: Mapping[str, str] = {
    "aot_inductor": "trtcache.backends.aot_inductor.backend:AotInductor",
    "tensorrt": "trtcache.backends.tensorrt.backend:TensorRT",
    "tensorrt_rtx": "trtcache.backends.tensorrt.backend:TensorRTRtx",
}


@cache
def backend_table() -> Mapping[str, str]:
    """Return every backend's ``module:attribute`` by name."""
    from importlib.metadata import entry_points  # 20 ms, which a built-in backend does not need

    return _merge(BUILT_IN, entry_points(group="trtcache.backends"))


def _merge(ours: Mapping[str, str], theirs: Iterable[EntryPoint]) -> dict[str, str]:
    table = dict(ours)
    owners = dict.fromkeys(ours, "trtcache")
    for point in theirs:
        owner = point.dist.name if point.dist else point.value
        if point.name in table:
            raise BackendUnavailableError(point.name, f"offered by both {owners[point.name]} and {owner}; remove one")
        table[point.name], owners[point.name] = point.value, owner
    return table


def package_of(name: str) -> tuple[str, str]:
    """Return the distribution that offers a backend, and its version; empty strings if that is unknown."""
    from importlib.metadata import entry_points

    if name in BUILT_IN:
        return "trtcache", installed_version()
    for point in entry_points(group="trtcache.backends", name=name):
        if point.dist is not None:
            return point.dist.name, point.dist.version
    return "", ""


def load_backend_class(name: str) -> Any:
    """Import and return the class of a backend, which is not checked.

    Raises:
        SettingsError: the name is not a string.
        BackendUnavailableError: the name is unknown, or the class cannot be imported.
    """
    if not isinstance(name, str):
        raise SettingsError("backend", f"expected a string such as 'aot_inductor', got {name!r}")
    table = BUILT_IN if name in BUILT_IN else backend_table()  # reading entry points takes milliseconds
    if name not in table:
        raise BackendUnavailableError(name, did_you_mean(name, ["auto", *table]))
    module, _, attribute = table[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise BackendUnavailableError(name, f"cannot be imported: {error}") from error
    except Exception as error:  # another distribution's code
        raise BackendUnavailableError(name, f"it fails with {type(error).__name__}: {error}") from error
