"""Files that appear complete or not at all, where a file may be."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trtcache.config.full_disk import room_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path``, which takes its name when all went well and is gone when not.

    Raises:
        OSError: ``path`` is something else than a file, the file cannot take its name, or the disk is full.
    """
    require_file(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with room_for(path, f"make room in {path.absolute().parent}, or name a file on another disk"):
            yield temporary
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def require_file(path: Path) -> None:
    """Refuse a name that a folder, device, pipe or socket has: renaming would put a file in the place of ``/dev/null``.

    Raises:
        OSError: there is such a thing, or the folder is not there or cannot be looked into.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "its folder is not there; make that first", str(path)) from None
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a device, pipe or socket, and a file would take its place", str(path))
