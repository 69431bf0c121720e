"""The directories of a store, opened without following links.

In a shared store any member can replace a directory with a link, and code that works by path would then write, sweep or
delete in another user's directory. So each directory is opened name by name below the root without following links, and
all operations go through that descriptor. Only one user writes to a private store, whose paths are used directly.
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
        """Yield a path for the directory ``names`` below the root that cannot be redirected while the block runs.

        ``make`` creates missing directories, and flushes each name even if it existed: another process may have created
        it a moment ago, before it is durable.

        Raises:
            OSError: a directory is missing, is a link or a file, or cannot be created.
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
        """Create a directory with its final mode, atomically and independent of the umask."""
        if _is_there(parent, name):
            raise FileExistsError(name)
        root = os.open(self.root, _FLAGS)
        temporary = f"{TEMPORARY}{os.urandom(8).hex()}"
        try:
            os.mkdir(temporary, 0o700, dir_fd=root)
            fd = os.open(temporary, _FLAGS, dir_fd=root)
            try:
                os.fchmod(fd, directory_mode(root))
            finally:
                os.close(fd)
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
    """Rename a new directory into place; if several processes do so at once, one of them wins."""
    try:
        os.rename(temporary, name, src_dir_fd=source, dst_dir_fd=parent)
    except OSError as error:
        with suppress(FileNotFoundError):  # NFS repeats a request whose reply was lost, and then finds no source
            os.rmdir(temporary, dir_fd=source)
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise FileExistsError(name) from error
        raise
