"""Which threads and modules are the user's: what their code changes during an export is not the export's."""

from __future__ import annotations

import functools
import sys
import threading
import types

from trtcache.lowering.python_objects import is_kind

_OTHERS = (sys.stdlib_module_names - {"__main__"}) | {"torch", "trtcache"}
_OURS = ("torch.", "trtcache.")
_HARMLESS = frozenset({("tqdm._monitor", "TMonitor"), ("IPython.core.history", "HistorySavingThread")})
"""Threads of libraries that run no code of the user's."""


def is_alone() -> bool:
    """Return whether no other thread can run code of the user's, whose changes a restoration would undo."""
    others = [one for one in threading.enumerate() if one is not threading.current_thread()]
    return not any(map(_can_run_users_code, others))


def _can_run_users_code(thread: threading.Thread) -> bool:
    """Return whether a thread may run code of the user's, as those of libraries for servers do."""
    kind, target = type(thread), getattr(thread, "_target", None)
    if str(getattr(target, "__module__", "")).startswith(_OURS):  # such as those of Inductor
        return False
    return not kind.__module__.startswith(_OURS) and (kind.__module__, kind.__name__) not in _HARMLESS


def is_users(module: types.ModuleType | None) -> bool:
    """Return whether a module is in a file that does not belong to Python or to an installed distribution."""
    names = _names_of(module)
    return isinstance(names.get("__file__"), str) and is_followed(names.get("__name__")) and not is_installed(module)


def is_installed(module: types.ModuleType | None) -> bool:
    """Return whether a module is in a file of an installed distribution."""
    return "-packages" in str(_names_of(module).get("__file__"))


def _names_of(module: types.ModuleType | None) -> dict[str, object]:
    if not is_kind(module, types.ModuleType):
        return {}
    names: dict[str, object] = object.__getattribute__(module, "__dict__")  # no lazy module is imported
    return names


def is_followed(module: object) -> bool:
    """Return whether a module is neither Python's nor torch's nor of this package."""
    return type(module) is str and _is_followed(module)


@functools.cache
def _is_followed(module: str) -> bool:
    return module.partition(".")[0] not in _OTHERS
