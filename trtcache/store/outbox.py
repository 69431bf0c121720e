"""Outbox of a store: an empty file for each entry that is waiting for its upload.

It survives the process, so what was not sent at exit is sent by the next process, or by ``trtcache push``. Files are
empty: a member of a shared store can only cause entries to be offered again.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from trtcache.store.files import is_plain, make_permanent, modification_time_ns
from trtcache.store.format import HEX_DIGEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.store.files import Folders

FOLDER: Final = "outbox"
MOST: Final = 10_000
"""Entries that may wait. A remote that is down for long must not fill the directory without limit."""


class Outbox:
    """The waiting entries below one root, by key digest."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def add(self, digest: str) -> bool:
        """Add an entry, and return whether there was room.

        Raises:
            OSError: the file cannot be created.
        """
        with self._folders.inside(FOLDER, make=True) as folder:
            if len(os.listdir(folder)) >= MOST:  # noqa: PTH208  # only the names are needed
                return False
            make_permanent(folder / digest)
        return True

    def digests(self) -> list[str]:
        """List the waiting entries, those that were postponed last."""
        waiting = []
        try:
            with self._folders.inside(FOLDER) as folder, os.scandir(folder) as files:
                for file in files:
                    if HEX_DIGEST.fullmatch(file.name):
                        with suppress(FileNotFoundError):  # another process has sent it
                            waiting.append((modification_time_ns(file), file.name))
        except OSError:
            return []
        return [name for _, name in sorted(waiting)]

    def postpone(self, digest: str) -> None:
        """Move an entry that could not be sent to the end."""
        with suppress(OSError), self._folders.inside(FOLDER) as folder:
            fd = os.open(folder / digest, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if is_plain(os.fstat(fd)):  # a hard link could be another file of this user
                    os.utime(fd)
            finally:
                os.close(fd)

    @contextmanager
    def hold(self, digest: str) -> Iterator[bool]:
        """Lock an entry while it is sent; yield False if it is gone, or another process sends it."""
        try:
            with self._folders.inside(FOLDER) as folder:
                fd = os.open(folder / digest, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            yield False
            return
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = os.fstat(fd).st_nlink > 0
            except OSError:
                alone = False
            yield alone
        finally:
            os.close(fd)

    def remove(self, digest: str) -> None:
        """Remove an entry that was sent, or that will not be."""
        with suppress(OSError), self._folders.inside(FOLDER) as folder:
            (folder / digest).unlink()
