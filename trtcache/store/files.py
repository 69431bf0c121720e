"""Files that are there as a whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Self

TEMPORARY: Final = ".tmp-"


def file_mode(directory: Path | int) -> int:
    """Return the mode of files in a directory: 0600, and for the group what a setgid directory gives to it.

    A shared store's directories are setgid, so what is made in them is the members' by itself.
    """
    found = os.stat(directory).st_mode  # noqa: PTH116  # a descriptor, too
    return 0o600 | (found & 0o060 if found & stat.S_ISGID else 0)


def directory_mode(directory: Path | int) -> int:
    """Return the mode of directories in a directory: 0700, or of a setgid one its own."""
    found = os.stat(directory).st_mode  # noqa: PTH116  # a descriptor, too
    return 0o2700 | (found & 0o070) if found & stat.S_ISGID else 0o700


class TemporaryFile:
    """A new file in ``directory`` that gets its name when it is complete, and else is gone at the end of the block.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"{TEMPORARY}{os.urandom(8).hex()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = file_mode(directory)
        self.fd = os.open(self.path, flags, 0o600)
        self._made = os.fstat(self.fd)
        if mode != 0o600:
            os.fchmod(self.fd, mode)  # not by the umask, which is the whole process's

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
        try:
            self.path.rename(path)
        except FileNotFoundError:
            # NFS sends a request again whose reply was lost, and a rename that was made finds nothing then.
            if not os.path.samestat(self._made, path.lstat()):
                raise
        sync_directory(path.parent)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(OSError):
                self.close()
            with suppress(OSError):
                self.path.unlink()


def is_plain(found: os.stat_result) -> bool:
    """Return whether this is a regular file with one name: what is written to it is written nowhere else."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def publish_bytes(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Make the small file ``path`` with this content: after a crash it is there as a whole or not at all.

    Raises:
        OSError: it cannot be written, or does not read back as it was written.
    """
    with TemporaryFile(path.parent) as temporary:
        write_at(temporary.fd, data, 0)
        if mode is not None:
            os.fchmod(temporary.fd, mode)
        os.fsync(temporary.fd)
        if os.pread(temporary.fd, len(data) + 1, 0) != data:
            raise OSError(errno.EIO, "it does not read back as it was written", str(path))
        temporary.commit(path)


def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``, however many calls the kernel wants for it.

    Raises:
        OSError: the file cannot be written.
    """
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


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


def make_permanent(path: Path) -> None:
    """Make an empty file that has its mode from the instant that it is there; one that is there stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    if file_mode(path.parent) == 0o600:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
    elif not os.path.lexists(path):
        with TemporaryFile(path.parent) as temporary:
            with suppress(FileExistsError):
                path.hardlink_to(temporary.path)
            temporary.close()
            temporary.path.unlink()


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
