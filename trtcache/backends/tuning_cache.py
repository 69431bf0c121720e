"""What builders and engines learn on the way, kept for the next: timing caches, runtime caches.

It saves time and decides nothing about what is built, so it is in no key and may be lost at any time.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Learned(Protocol):
    """Keeps what was learned, by kind and by what it is true for. A ``Cache`` is one."""

    def recall(self, kind: str, parts: Mapping[str, object]) -> bytes | None:
        """Return what was learned so far, None where nothing was. MUST NOT raise because of what is stored."""
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
        """Keep what ``combine`` makes of what is kept now, or leave that where it returns None.

        ``saves_s`` is about how long it would take to learn it again, by which a full store chooses what to drop.
        It MUST let no other process do so meanwhile, and trouble with the store MUST NOT become the caller's.
        """
        ...


_LEARNED: ContextVar[Learned | None] = ContextVar("trtcache.backends.tuning_cache", default=None)


@contextmanager
def learning(where: Learned) -> Iterator[None]:
    """Let what is learned meanwhile, in this thread, be kept there."""
    token = _LEARNED.set(where)
    try:
        yield
    finally:
        _LEARNED.reset(token)


def learned() -> Learned | None:
    """Return where what is learned is kept; None for nowhere."""
    return _LEARNED.get()
