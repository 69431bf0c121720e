"""The directories of a store, reached so that nobody who can write to it leads the way elsewhere.

In a shared store any member can put a link in the place of a directory: what was then written, swept or deleted by
path would be another user's own. So each directory is opened name by name below the root, following no link, and what
is done in it is done through that descriptor. Nobody else writes to a private store, whose paths are used as they are.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.store.files import TEMPORARY, directory_mode, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Folders:
    """The directories below one root."""

    root: Path
    shared: bool

    @contextmanager
    def inside(self, *names: str, make: bool = False) -> Iterator[Path]:
        """Give a path of the directory ``names`` below the root that leads nowhere else while the block runs.

        ``make`` makes what is missing, and flushes each name on the way, whoever made it: a directory that another
        process made an instant ago may not be on the disk yet.

        Raises:
            OSError: a directory is missing, is a link or a file, or cannot be made.
        """
        if not self.shared:
            yield self._plain(names, make=make)
            return
        with ExitStack() as stack:
            fd = os.open(self.root, _FLAGS)
            stack.callback(os.close, fd)
            for name in names:
                fd = self._enter(fd, name, make=make)
                stack.callback(os.close, fd)
            yield Path(f"/proc/self/fd/{fd}")

    def _plain(self, names: tuple[str, ...], *, make: bool) -> Path:
        path = self.root
        for name in names:
            parent, path = path, path / name
            if make:
                with suppress(FileExistsError):
                    path.mkdir(mode=0o700)
                sync_directory(parent)
        return path

    def _enter(self, parent: int, name: str, *, make: bool) -> int:
        if make:
            with suppress(FileExistsError):
                self._make(parent, name)
            os.fsync(parent)
        return os.open(name, _FLAGS, dir_fd=parent)

    def _make(self, parent: int, name: str) -> None:
        """Make a directory that every member can use from the instant that it has its name, whatever the umask.

        Raises:
            FileExistsError: something is there.
            OSError: it cannot be made.
        """
        if _is_there(parent, name):
            raise FileExistsError(name)
        root = os.open(self.root, _FLAGS)
        temporary = f"{TEMPORARY}{os.urandom(8).hex()}"
        try:
            os.mkdir(temporary, 0o700, dir_fd=root)
            made = os.open(temporary, _FLAGS, dir_fd=root)
            try:
                os.fchmod(made, directory_mode(root))
            finally:
                os.close(made)
            _rename(root, temporary, parent, name)
        finally:
            os.close(root)


def _is_there(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _rename(source: int, temporary: str, parent: int, name: str) -> None:
    """Give a new directory its name; of several that come at once one stays, empty or with what is in it already."""
    try:
        os.rename(temporary, name, src_dir_fd=source, dst_dir_fd=parent)
    except OSError as error:
        with suppress(FileNotFoundError):  # NFS made it, lost the reply, and found nothing when it was asked again
            os.rmdir(temporary, dir_fd=source)
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise FileExistsError(name) from error
        raise
