"""Temporary folders that libraries are loaded from, and removal of those left by killed processes.

A folder in use contains a file that its process holds a lock on; the kernel drops the lock with the process. So any
container that shares the directory can tell which folders are abandoned, without looking up processes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "trtcache-load-"
TORCH_PREFIX = "aotinductor_"
UNCLAIMED_S = 86400.0
"""Minimum age of an unlocked folder to be removed: torch creates, fills and loads from one before it is claimed."""

_CLAIM = ".trtcache-in-use"
_OF_A_GPU = {".cubin", ".fatbin", ".hsaco", ".ptx", ".spv"}


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a new private folder for the block.

    Raises:
        OSError: it cannot be created.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        claimed = claim(folder)
        try:
            yield folder
        finally:
            os.close(claimed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def claim(folder: Path) -> int:
    """Mark a folder as in use until the returned descriptor is closed or the process ends.

    Raises:
        OSError: the file system does not support locks.
    """
    fd = os.open(folder / _CLAIM, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def reclaim(directory: Path | None = None, *, now_s: float | None = None) -> int:
    """Remove this user's folders that no living process uses, and return their number.

    Folders that cannot be inspected or removed are left for the next time.
    """
    removed = 0
    with suppress(OSError), os.scandir(directory or tempfile.gettempdir()) as found:
        for candidate in found:
            if candidate.name.startswith((PREFIX, TORCH_PREFIX)) and _is_ours(candidate):
                folder = Path(candidate.path)
                if _is_abandoned(folder, time.time() if now_s is None else now_s):
                    shutil.rmtree(folder, ignore_errors=True)
                    removed += not folder.exists()
    return removed


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_abandoned(folder: Path, now_s: float) -> bool:
    try:
        fd = os.open(folder / _CLAIM, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return _is_unclaimed(folder, now_s)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _is_unclaimed(folder: Path, now_s: float) -> bool:
    """Return whether a folder without a lock file is unused.

    Program that use torch directly create such folders too. A loaded library does not need its file any more; GPU
    kernels are read when they are first called.
    """
    try:
        if now_s - folder.lstat().st_mtime < UNCLAIMED_S:
            return False
        return not any(path.suffix in _OF_A_GPU for path in folder.rglob("*"))
    except OSError:
        return False
