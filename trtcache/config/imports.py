"""The seconds that importing this package took, for the report of the first compile."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
