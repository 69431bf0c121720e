"""Single flight: of all threads and processes that want to build one key, one builds and the others wait.

The lock is the kernel's, on a file that is never removed. It ends with its holder, however that ends, so a waiter
behind a killed leader becomes the leader.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from trtcache.errors import LockTimeoutError
from trtcache.store.build_notes import BuildNotes, BuildProcess
from trtcache.store.file_lock import hold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.store.folders import Folders

NOTICE_EVERY_S = 10.0

OnWait: TypeAlias = Callable[["BuildProcess | None", float], object]
"""BuildProcess seems to build, and the seconds of waiting so far. What it raises ends the wait."""


@dataclass(frozen=True, slots=True)
class Turn:
    """How a builder came to its lock: after how long, and whose note it found, who died while it held the lock."""

    waited_s: float
    left_by: BuildProcess | None = None


@contextmanager
def turn(
    folders: Folders,
    digest: str,
    who: BuildProcess,
    *,
    timeout_s: float | None = None,
    on_wait: OnWait | None = None,
    notice_every_s: float = NOTICE_EVERY_S,
) -> Iterator[Turn]:
    """Hold the lock of a key's builder, and leave notes about who builds and who waits.

    Raises:
        LockTimeoutError: another held it for ``timeout_s`` seconds.
        OSError: its directory cannot be made, or the file system has no locks.
        Exception: whatever ``on_wait`` raises.
    """
    notes = BuildNotes(folders)
    with ExitStack() as stack:
        with ExitStack() as meanwhile:
            noted: list[None] = []

            def notice(waited_s: float) -> None:
                if not noted:
                    noted.append(meanwhile.enter_context(notes.waiting(digest, who)))
                if on_wait is not None:
                    on_wait(notes.builder(digest), waited_s)

            folder = stack.enter_context(folders.inside("locks", digest[:2], make=True))
            lock = flight(folder / f"{digest}.lock", timeout_s=timeout_s, notice=notice, notice_every_s=notice_every_s)
            waited_s = stack.enter_context(lock)
        yield Turn(waited_s, stack.enter_context(notes.building(digest, who)))


@contextmanager
def flight(
    path: Path,
    *,
    timeout_s: float | None = None,
    notice: Callable[[float], object] = lambda _: None,
    notice_every_s: float = NOTICE_EVERY_S,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[float]:
    """Hold the lock file ``path`` while the body runs, and give the seconds of waiting for it. Not reentrant.

    ``notice`` is called with the seconds so far when the wait begins, and again and again.

    Raises:
        LockTimeoutError: another held it for ``timeout_s`` seconds.
        OSError: the lock file cannot be made, or the file system has no locks.
        Exception: whatever ``notice`` raises.
    """
    began_s, step_s = clock_s(), 0.0
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(hold(path, timeout_s=step_s))
                break
            except LockTimeoutError as error:
                waited_s = clock_s() - began_s
                if timeout_s is not None and waited_s >= timeout_s:
                    raise LockTimeoutError(str(path), waited_s) from error
            notice(waited_s)
            step_s = notice_every_s if timeout_s is None else min(notice_every_s, timeout_s - waited_s)
        yield clock_s() - began_s if step_s else 0.0
