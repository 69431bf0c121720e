"""Acquire the build lock of an entry, and report the wait to the log and to build watchers."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from trtcache.errors import BuildCancelledError, LockTimeoutError
from trtcache.progress import Step, watcher
from trtcache.store.build_notes import BuildProcess
from trtcache.store.single_flight import NOTICE_EVERY_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.config.contention import ContentionPolicy
    from trtcache.digests import CacheKey
    from trtcache.store.disk import DiskStore

_logger = logging.getLogger("trtcache.cache")

_WATCHED_EVERY_S = 1.0


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
            _logger.info("%s (%s)%s", text, self._what(who), "" if self._next_s else self._limit())
            self._next_s = waited_s + NOTICE_EVERY_S * 0.99
        if self._watcher is not None and self._watcher(Step(text, 0, 0)) is False:
            raise BuildCancelledError(self._key.kind, f"while it waited for {whom}")

    def _what(self, who: BuildProcess | None) -> str:
        program = f", by {who.program}" if who and who.program else ""
        return f"{self._key.kind} {self._key.digest[:16]}{program}"

    def _limit(self) -> str:
        timeout_s = self._busy.timeout_s
        if timeout_s is None:
            return ""
        then = "runs without an engine" if self._busy.policy == "eager" else "builds for itself"
        rank = f"{self._busy.rank} " if self._busy.rank else ""
        return f"; after {timeout_s:.0f} s {rank or 'it '}{then}"


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
