"""Open a file of another tool's cache: a regular one with one name, that nobody else could have written."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from trtcache.digests import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_BYTES: Final = 1 << 20
_NO_FILE = {errno.ELOOP: "it is a link", errno.ENXIO: "it is a pipe", errno.ENODEV: "it is a device"}


class PlainFile:
    """An open file. ``unsafe`` says why others could have written it, or is empty."""

    def __init__(self, path: Path) -> None:
        """Open ``path`` without following a link and without waiting.

        Raises:
            ValueError: it is a link, a pipe, a directory or a device.
            OSError: it cannot be opened.
        """
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise ValueError(_NO_FILE[error.errno]) from error
            raise
        self.close = weakref.finalize(self, os.close, self._fd)
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise ValueError("it is no regular file")
        self.size_bytes, self.changed_ns = found.st_size, found.st_mtime_ns
        self.unsafe = _unsafe(found)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of the file; fewer where it ends before.

        Raises:
            OSError: it cannot be read.
        """
        return os.pread(self._fd, size_bytes, offset)

    def chunks(self, offset: int, size_bytes: int) -> Iterator[bytes]:
        """Yield a part of the file, a MiB at a time.

        Raises:
            ValueError: the file ends before.
            OSError: it cannot be read.
        """
        end = offset + size_bytes
        while offset < end:
            data = self.read(offset, min(CHUNK_BYTES, end - offset))
            if not data:
                raise ValueError(f"it ends at {offset}")
            yield data
            offset += len(data)

    def digest(self, offset: int, size_bytes: int) -> Digest:
        """Return the digest of a part of the file.

        Raises:
            ValueError: the file ends before.
            OSError: it cannot be read.
        """
        hasher = blake3()
        for data in self.chunks(offset, size_bytes):
            hasher.update(data)
        return Digest(hasher.hexdigest(), size_bytes)


def _unsafe(found: os.stat_result) -> str:
    if found.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {found.st_uid}"
    if found.st_nlink > 1:
        return "it has another name somewhere, a hard link, through which it can change"
    if found.st_mode & 0o022:
        return "other users may write to it; if none did, run: chmod go-w"
    return ""
