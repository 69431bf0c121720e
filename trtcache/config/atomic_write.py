"""Atomic writes to files named by the user, and error messages for a full disk."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path, renamed to ``path`` on success and deleted on failure.

    Raises:
        OSError: ``path`` is not a regular file, the temporary file cannot be renamed, or the disk is full.
    """
    require_file(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with room_for(path, f"free space in {path.absolute().parent}, or use a file on another disk"):
            yield temporary
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def require_file(path: Path) -> None:
    """Reject the path of a directory, device, pipe or socket: a rename would replace ``/dev/null``.

    Raises:
        OSError: ``path`` is not a regular file, or its directory does not exist or cannot be read.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "its directory does not exist; create it first", str(path)) from None
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory; use a file in it", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a device, pipe or socket, which a file would replace", str(path))


@contextmanager
def room_for(path: Path, remedy: str) -> Iterator[None]:
    """Add the file and a remedy to the error of a full disk; the error of a write to an open file names neither.

    Raises:
        OSError: the disk or the quota is full; other errors are not changed.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise OSError(error.errno, f"{os.strerror(error.errno)}; {remedy}", str(path)) from error
