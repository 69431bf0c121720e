"""Contracts that authors of backends and stores run with pytest, and a backend without a builder.

Each name is loaded on first use. ``BackendContract``, ``RefitContract`` and ``StoreContract`` need pytest, which is
not a dependency of trtcache: derive a class whose name starts with ``Test`` (``docs/backends.md``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.config.imports import lazy_names

if TYPE_CHECKING:
    from trtcache.testing.backends import BackendContract as BackendContract
    from trtcache.testing.interpreter import Interpreter as Interpreter
    from trtcache.testing.refit import RefitContract as RefitContract
    from trtcache.testing.stores import StoreContract as StoreContract

_EXPORTS = {
    "BackendContract": ".backends",
    "Interpreter": ".interpreter",
    "RefitContract": ".refit",
    "StoreContract": ".stores",
}

__all__ = [*sorted(_EXPORTS)]


__getattr__ = lazy_names(__name__, _EXPORTS)
