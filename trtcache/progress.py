"""Build progress callbacks: ``with trtcache.watching(function): trtcache.compile(...)``.

The function is called with a ``Step`` for each progress report of a builder, from the builder's own threads. If it
returns False, or raises, the build is cancelled. It does not affect the result, so it is not a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of one phase of a build.

    Attributes:
        phase: its name.
        done: steps done.
        steps: total steps; a phase that ends early has fewer. 0 while waiting for another process's build: then the
            phase is the process and the time waited, ``waiting for host:pid, 34 s``.
        depth: number of enclosing phases.
    """

    phase: str
    done: int
    steps: int
    depth: int = 0


Watcher: TypeAlias = Callable[[Step], object]

_WATCHER: ContextVar[Watcher | None] = ContextVar("trtcache.watcher", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Call ``watcher`` with the progress of builds that start in this block; returning False cancels the build."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def watcher() -> Watcher | None:
    """Return the progress callback of the current context."""
    return _WATCHER.get()
