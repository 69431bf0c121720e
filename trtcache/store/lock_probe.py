"""Whether locks exclude on a file system that is not of this machine alone: tried before the first build there.

Some let every process have every lock, and then each would build at once, and prune what another has just put. What was
seen to exclude is remembered for the store, this host and this mount; what was not is tried again by each process.
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
    """Return why nothing should be built in ``directory``, or None. ``notes`` is a directory of this user and host."""
    try:
        note = notes / f"locks-exclude-{directory.stat().st_dev:x}"
        if note.exists():
            return None
        seen = try_locks(directory, lock=lock)
    except OSError as error:
        return f"its locks cannot be tried: {error.strerror}"
    if seen is None:
        with suppress(OSError):
            note.touch(mode=0o600)
    return seen


def try_locks(directory: Path, *, lock: Callable[[int, int], None] = fcntl.flock) -> str | None:
    """Take one lock through two descriptors; return what was wrong with that, or None where the second was refused.

    Raises:
        OSError: no file can be made there.
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
    return "two descriptors had one lock at the same time"
