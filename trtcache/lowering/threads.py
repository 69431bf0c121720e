"""Which threads and modules are the user's: what their code changes during an export is not the export's."""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Any

from trtcache.lowering.python_objects import is_kind

_OTHERS = (sys.stdlib_module_names - {"__main__"}) | {"torch", "trtcache"}
_OURS = ("torch.", "trtcache.")
_HARMLESS = frozenset(
    {
        *("tqdm._monitor", "IPython.core.history", "ipykernel.iostream", "ipykernel.heartbeat", "ipykernel.control"),
        *("ipykernel.shellchannel", "ipykernel.parentpoller"),
    }
)
"""Modules whose threads run no code of the user's, such as those that each notebook has."""


def is_alone() -> bool:
    """Return whether no other thread can run code of the user's, whose changes a restoration would undo."""
    others = [one for one in threading.enumerate() if one is not threading.current_thread()]
    return not any(map(_can_run_users_code, others))


def _can_run_users_code(thread: threading.Thread) -> bool:
    """Return whether a thread may run code of the user's, as those of libraries for servers do."""
    modules = [str(getattr(one, "__module__", "")) for one in (type(thread), getattr(thread, "_target", None))]
    return not any(one.startswith(_OURS) or one in _HARMLESS for one in modules)  # Inductor has some


def is_users(module: types.ModuleType | None) -> bool:
    """Return whether a module is in a file that does not belong to Python or to an installed distribution."""
    names = names_of(module)
    folders = getattr(names.get("__path__"), "_path", None)  # of a package without a file
    where = names.get("__file__") or (folders[0] if isinstance(folders, list) and folders else None)
    is_installed = isinstance(where, str) and ("site-packages" in where or "dist-packages" in where)
    return isinstance(where, str) and is_followed(names.get("__name__")) and not is_installed


def names_of(module: types.ModuleType | None) -> dict[str, Any]:
    """Return the names of a module, without importing a lazy one; nothing for what is no module."""
    if not is_kind(module, types.ModuleType):
        return {}
    names: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return names


def is_followed(module: object) -> bool:
    """Return whether a module is neither Python's nor torch's nor of this package."""
    return type(module) is str and _is_followed(module)


@functools.cache
def _is_followed(module: str) -> bool:
    return module.partition(".")[0] not in _OTHERS
