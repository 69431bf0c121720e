"""Single-flight locks for builds: of all threads and processes that need one key, one builds and the others wait.

The kernel's lock on a permanent file is used. It is released when its holder exits for any reason, so a waiter behind a
killed leader becomes the leader.
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
"""Callback for waiters: the process that seems to build, and the seconds waited so far. An exception ends the wait."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An acquired build lock: the time waited, and the previous holder if it died while it built."""

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
    """Hold the build lock of a key, and write status files of the builder and the waiters.

    Raises:
        LockTimeoutError: another process held it for ``timeout_s`` seconds.
        OSError: its directory cannot be created, or the file system has no locks.
        Exception: any exception of ``on_wait``.
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
    """Hold the lock file ``path`` while the body runs, and yield the seconds waited. Not reentrant.

    ``notice`` is called with the seconds waited when the wait begins, and repeatedly while it lasts.

    Raises:
        LockTimeoutError: another process held it for ``timeout_s`` seconds.
        OSError: the lock file cannot be created, or the file system has no locks.
        Exception: any exception of ``notice``.
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
