"""Watching a build: ``with trtcache.watching(function): trtcache.compile(...)``.

The function is called with a ``Step`` whenever a builder tells of one, from the builder's own threads. If it returns
False, or raises, the build is called off. Who watches changes nothing that is built, so it is no setting.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Step:
    """How far one phase of a build is.

    Attributes:
        phase: its name.
        done: how many of its steps are done.
        steps: how many it has; a phase that ends early has fewer. 0 while the build of another process is waited for:
            then the phase says whose and how long, ``waiting for host:pid, 34 s``.
        depth: how many phases it is inside of.
    """

    phase: str
    done: int
    steps: int
    depth: int = 0


Watcher: TypeAlias = Callable[[Step], object]

_WATCHER: ContextVar[Watcher | None] = ContextVar("trtcache.watcher", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Tell a function of the steps of every build that is begun in this block; False calls the build off."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def watcher() -> Watcher | None:
    """Return who watches builds of this context, if anybody does."""
    return _WATCHER.get()
