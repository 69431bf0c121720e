"""Contracts that authors of backends and stores run with pytest, and a backend without a builder.

Each name is loaded on first use. ``BackendContract``, ``RefitContract`` and ``StoreContract`` need pytest, which is not
a dependency of trtcache: derive a class whose name starts with ``Test`` (``docs/backends.md``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtcache.testing.backends import BackendContract as BackendContract
    from trtcache.testing.interpreter import Interpreter as Interpreter
    from trtcache.testing.refit import RefitContract as RefitContract
    from trtcache.testing.stores import StoreContract as StoreContract

_EXPORTS = {
    "BackendContract": "backends",
    "Interpreter": "interpreter",
    "RefitContract": "refit",
    "StoreContract": "stores",
}

__all__ = [*sorted(_EXPORTS)]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value
