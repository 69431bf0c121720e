"""Probe whether `flock` works on a network file system, before the first build there.

On some, every process gets every lock; each would then build at once, and prune what another has just stored. A success
is remembered for the store, this host and this mount; a failure is probed again by each process.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from trtcache.store.files import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def objection(directory: Path, notes: Path, *, lock: Callable[[int, int], None] = fcntl.flock) -> str | None:
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
    """Lock one file through two descriptors; return what went wrong, or None if the second lock was refused.

    Raises:
        OSError: no file can be created there.
    """
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
