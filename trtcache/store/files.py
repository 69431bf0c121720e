"""Files that are there as a whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Self

TEMPORARY: Final = ".tmp-"


class TemporaryFile:
    """A new file in ``directory`` that gets its name when it is complete, and else is gone at the end of the block.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"{TEMPORARY}{os.urandom(8).hex()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self.path, flags, 0o600)

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """Close it once: a second close could hit a descriptor that another thread has opened since.

        Raises:
            OSError: the kernel could not write; a network file system may report a full disk only here.
        """
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def commit(self, path: Path) -> None:
        """Give the written and flushed file its name, such that the name survives a power cut.

        Raises:
            OSError: a step failed.
        """
        self.close()
        self.path.rename(path)
        sync_directory(path.parent)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(OSError):
                self.close()
            with suppress(OSError):
                self.path.unlink()


def publish_bytes(path: Path, data: bytes) -> None:
    """Make the small file ``path`` with this content: after a crash it is there as a whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with TemporaryFile(path.parent) as temporary:
        os.write(temporary.fd, data)
        os.fsync(temporary.fd)
        temporary.commit(path)


def make_directories(directory: Path, root: Path) -> None:
    """Make ``directory`` below ``root`` and flush each name on the way, whoever made it.

    A directory that another process made an instant ago may not be on the disk yet.

    Raises:
        OSError: one cannot be made.
    """
    path = root
    for part in directory.relative_to(root).parts:
        parent, path = path, path / part
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        sync_directory(parent)


def sync_directory(directory: Path) -> None:
    """Flush a directory's names to the disk.

    Raises:
        OSError: the kernel could not.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sweep(directory: str | os.PathLike[str], prefix: str, before_ns: int) -> int:
    """Delete what is in ``directory``, begins with ``prefix`` and is not younger than ``before_ns``; return its bytes.

    What cannot be deleted is left for the next time.
    """
    freed_bytes = 0
    with suppress(OSError), os.scandir(directory) as found:
        for entry in found:
            if entry.name.startswith(prefix) and entry.stat(follow_symlinks=False).st_mtime_ns <= before_ns:
                freed_bytes += delete(Path(entry.path))
    return freed_bytes


def delete(path: Path) -> int:
    """Delete a file, or a directory that somebody put in a file's place; return its bytes, 0 if it is not there.

    Raises:
        OSError: it cannot be deleted.
    """
    try:
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode):
            from shutil import rmtree  # three compression libraries that a hit does not need

            rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    except FileNotFoundError:
        return 0
    return found.st_size
