"""Public names that are imported on first use, and the seconds that importing this package took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module


def lazy_names(module: str, places: Mapping[str, str], *, package: str = "") -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module (PEP 562) that imports names when they are first used.

    Args:
        module: the module's ``__name__``.
        places: name -> the module that it is in; one that begins with a dot is relative to ``package``.
        package: by default the module itself.
    """

    def getattr_(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value: object = getattr(import_module(places[name], package or module), name)
        setattr(sys.modules[module], name, value)
        return value

    return getattr_


_seconds = 0.0


@contextmanager
def timed_imports() -> Iterator[None]:
    """Add the seconds of the block to those that ``take_import_s`` returns."""
    global _seconds
    start = time.perf_counter()
    try:
        yield
    finally:
        _seconds += time.perf_counter() - start


def take_import_s() -> float:
    """Return the seconds of imports since the last call of this function."""
    global _seconds
    taken, _seconds = _seconds, 0.0
    return taken
