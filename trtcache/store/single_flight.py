"""Single-flight locks for builds: of all threads and processes that need one key, one builds and the others wait.

The kernel's lock on a permanent file is used. It is released when its holder exits for any reason, so a waiter behind a
killed leader becomes the leader.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from trtcache.errors import BuildCancelledError, LockTimeoutError
from trtcache.progress import Step, watcher
from trtcache.store.build_notes import BuildNotes, BuildProcess
from trtcache.store.file_lock import hold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.config.contention import ContentionPolicy
    from trtcache.digests import CacheKey
    from trtcache.store.disk import DiskStore
    from trtcache.store.folders import Folders

_logger = logging.getLogger("trtcache.cache")

NOTICE_EVERY_S = 10.0
_WATCHED_EVERY_S = 1.0

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


class WaitReporter:
    """Report one process's wait for one entry. ``every_s`` is the interval between calls."""

    def __init__(self, key: CacheKey, busy: ContentionPolicy) -> None:
        self._key, self._busy = key, busy
        self._watcher = watcher()
        self._next_s = 0.0
        self.every_s = _WATCHED_EVERY_S if self._watcher else NOTICE_EVERY_S

    def __call__(self, who: BuildProcess | None, waited_s: float) -> None:
        """Report the wait.

        Raises:
            BuildCancelledError: the watcher cancelled the wait.
            Exception: any exception of the watcher.
        """
        whom = str(who) if who else "another process"
        text = f"waiting for {whom}, {waited_s:.0f} s"
        if waited_s >= self._next_s:
            program = f", by {who.program}" if who and who.program else ""
            what = f"{self._key.kind} {self._key.digest[:16]}{program}"
            limit = ""
            if not self._next_s and self._busy.timeout_s is not None:
                # The first message says what happens after the timeout.
                then = "runs without an engine" if self._busy.policy == "eager" else "builds for itself"
                limit = f"; after {self._busy.timeout_s:.0f} s {self._busy.rank or 'it'} {then}"
            _logger.info("%s (%s)%s", text, what, limit)
            self._next_s = waited_s + NOTICE_EVERY_S * 0.99
        if self._watcher is not None and self._watcher(Step(text, 0, 0)) is False:
            raise BuildCancelledError(self._key.kind, f"while it waited for {whom}")


@contextmanager
def hold_build_lock(store: DiskStore, key: CacheKey, *, name: str, busy: ContentionPolicy) -> Iterator[None]:
    """Hold the build lock of a key while the body runs; count waits, and takeovers from builders that died.

    Raises:
        LockTimeoutError: another process held it for as long as ``busy`` allows to wait.
        OSError: the lock cannot be acquired.
        BuildCancelledError: a watcher cancelled the wait.
    """
    waiting, who = WaitReporter(key, busy), BuildProcess.here(kind=key.kind, name=name)
    lock = store.flight(key.digest, who=who, timeout_s=busy.patience_s, on_wait=waiting, notice_every_s=waiting.every_s)
    with ExitStack() as stack:
        try:
            turn = stack.enter_context(lock)
        except LockTimeoutError as error:
            if busy.patience_s:
                store.events.append("wait", reason="timeout", kind=key.kind, key=key.digest, waited_s=error.waited_s)
            raise
        if turn.waited_s:
            store.events.append("wait", kind=key.kind, key=key.digest, waited_s=turn.waited_s)
        if turn.left_by is not None:
            _logger.warning("%s died while it built %s %s", turn.left_by, key.kind, key.digest[:16])
            store.events.append("takeover", kind=key.kind, key=key.digest)
        yield
