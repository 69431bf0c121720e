"""Lock files that exclude processes and threads, and a probe of whether `flock` works on a network file system.

The file is permanent: unlinking lock files broke exclusion in 26 of 120 holds between two NFS clients. The kernel
releases the lock with the process, so there are no stale locks; a file system without kernel locks is an error, there
is no fallback to lock-by-existence. The file is opened by the given path: a library that resolves the path, as
``filelock`` 4.2 does, would leave the directory that a shared store has opened, and create another where a link points.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

from trtcache.errors import LockTimeoutError
from trtcache.store.files import TEMPORARY, file_mode, make_permanent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_POLL_S = 0.02
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@contextmanager
def hold(path: Path, *, timeout_s: float) -> Iterator[int]:
    """Hold the lock file at ``path``, waiting up to ``timeout_s`` seconds for it (0: do not wait).

    Yields its descriptor: a child process that inherits it keeps the lock if this process ends.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if file_mode(path.parent) != 0o600:
        make_permanent(path)  # with its final mode at once, or another member could fail to open it
    fd, opened = os.open(path, _FLAGS, 0o600), _open_descriptors()
    opened.add(fd)
    end_s = time.monotonic() + timeout_s
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise LockTimeoutError(str(path), timeout_s) from error
                time.sleep(min(_POLL_S, left_s))
        yield fd
    finally:
        if fd in opened:  # not in a forked child, where the descriptor may belong to another file
            opened.discard(fd)
            # A restarted server may have lost the lock and return EIO; the protected work is done.
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # also releases it for a child that has not closed it yet
            with suppress(OSError):
                os.close(fd)


@cache
def _open_descriptors() -> set[int]:
    """Return the descriptors of this process's lock files, which a forked child closes: it would hold the locks too."""
    opened: set[int] = set()

    def close_all() -> None:
        for fd in opened:
            os.close(fd)
        opened.clear()

    os.register_at_fork(after_in_child=close_all)
    return opened


def why_not_exclusive(directory: Path, notes: Path, *, lock: Callable[[int, int], None] = fcntl.flock) -> str | None:
    """Return why nothing should be built in ``directory``, or None. ``notes`` is a private directory on this host."""
    try:
        note = notes / f"locks-exclude-{directory.stat().st_dev:x}"
        if note.exists():
            return None
        why = try_locks(directory, lock=lock)
    except OSError as error:
        return f"its locks cannot be tested: {error.strerror}"
    if why is None:
        with suppress(OSError):
            note.touch(mode=0o600)
    return why


def try_locks(directory: Path, *, lock: Callable[[int, int], None] = fcntl.flock) -> str | None:
    """Lock one file through two descriptors; return what went wrong, or None if the second lock was refused."""
    path = directory / f"{TEMPORARY}{os.urandom(8).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with ExitStack() as stack:
        first, second = os.open(path, flags, 0o600), os.open(path, flags, 0o600)
        for undo, argument in ((os.close, first), (os.close, second), (os.unlink, path)):
            stack.callback(undo, argument)  # type: ignore[arg-type]
        try:
            lock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        except OSError as error:
            return f"it has no locks: {error.strerror}"
    return "two descriptors held the same lock at once"
