"""Tuning caches: timing caches and runtime caches, kept for later builds and processes.

They save time and do not affect what is built, so they are in no key and may be lost at any time.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class TuningStore(Protocol):
    """Stores tuning caches by kind and by key parts. A ``Cache`` is one."""

    def recall(self, kind: str, parts: Mapping[str, object]) -> bytes | None:
        """Return the stored cache, or None. MUST NOT raise because of its content."""
        ...

    def merge(
        self,
        kind: str,
        parts: Mapping[str, object],
        combine: Callable[[bytes | None], bytes | None],
        *,
        name: str,
        saves_s: float,
    ) -> None:
        """Replace the stored cache by the result of ``combine``, unless that is None.

        ``saves_s`` estimates the time to measure it again; eviction uses it. Implementations MUST exclude other
        processes meanwhile, and MUST NOT raise because of the store.
        """
        ...


_LEARNED: ContextVar[TuningStore | None] = ContextVar("trtcache.backends.tuning_cache", default=None)


@contextmanager
def use_tuning_store(where: TuningStore) -> Iterator[None]:
    """Use a store for tuning caches in this thread for the duration of the block."""
    token = _LEARNED.set(where)
    try:
        yield
    finally:
        _LEARNED.reset(token)


def current_tuning_store() -> TuningStore | None:
    """Return the current store for tuning caches, or None."""
    return _LEARNED.get()
