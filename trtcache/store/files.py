"""Atomic files, directories opened without following links, lock files, and the outbox of a store.

After a crash of the process or the machine, a file is complete or does not exist.

In a shared store any member can replace a directory with a link, and code that works by path would then write, sweep
or delete in another user's directory. So each directory is opened name by name below the root without following links,
and all operations go through that descriptor. Only one user writes to a private store, whose paths are used directly.

A lock file is permanent: unlinking lock files broke exclusion in 26 of 120 holds between two NFS clients. The kernel
releases the lock with the process, so there are no stale locks; a file system without kernel locks is an error, there
is no fallback to lock-by-existence. The file is opened by the given path: a library that resolves the path, as
``filelock`` 4.2 does, would leave the directory that a shared store has opened, and create another where a link
points.

The outbox survives the process, so what was not sent at exit is sent by the next process, or by ``trtcache push``.
Files are empty: a member of a shared store can only cause entries to be offered again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import LockTimeoutError
from trtcache.store.format import HEX_DIGEST

if TYPE_CHECKING:
    from typing import Self


TEMPORARY: Final = ".tmp-"

_YEAR_2000_NS = 946_684_800 * 10**9
_SKEW_NS = 86400 * 10**9

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def file_mode(directory: Path | int) -> int:
    """Return the mode for files in a directory: 0600, with the group bits of a setgid directory.

    The directories of a shared store are setgid, so new files are accessible to its members.
    """
    mode = os.stat(directory).st_mode  # noqa: PTH116  # accepts a descriptor
    return 0o600 | (mode & 0o060 if mode & stat.S_ISGID else 0)


class TemporaryFile:
    """A new file in ``directory`` that is renamed when complete, and deleted if the block raises.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"{TEMPORARY}{os.urandom(8).hex()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = file_mode(directory)
        self.fd = os.open(self.path, flags, 0o600)
        self._made = os.fstat(self.fd)
        if mode != 0o600:
            os.fchmod(self.fd, mode)  # the umask belongs to the whole process

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """Close the file once: a second close could hit a descriptor that another thread has opened since."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def commit(self, path: Path, *, durable: bool = True) -> None:
        """Rename the written and flushed file to ``path``; if ``durable``, flush the directory that has the new name.

        Raises:
            OSError: a step failed.
        """
        self.close()
        try:
            self.path.rename(path)
        except FileNotFoundError:
            # NFS repeats a request whose reply was lost; a rename that succeeded then finds no source.
            if not os.path.samestat(self._made, path.lstat()):
                raise
        if durable:
            sync_directory(path.parent)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(OSError):
                self.close()
            with suppress(OSError):
                self.path.unlink()


def is_plain(found: os.stat_result) -> bool:
    """Return whether this is a regular file with a single hard link."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def publish_bytes(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write the small file ``path`` atomically and durably.

    Raises:
        OSError: it cannot be written, or does not read back as written.
    """
    with TemporaryFile(path.parent) as temporary:
        write_at(temporary.fd, data, 0)
        if mode is not None:
            os.fchmod(temporary.fd, mode)
        os.fsync(temporary.fd)
        if os.pread(temporary.fd, len(data) + 1, 0) != data:
            raise OSError(errno.EIO, "it does not read back as written", str(path))
        temporary.commit(path)


def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``, repeating short writes."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries to the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_permanent(path: Path) -> None:
    """Create an empty file with its final mode, atomically; an existing file is kept."""
    if file_mode(path.parent) == 0o600:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
    elif not os.path.lexists(path):
        with TemporaryFile(path.parent) as temporary:
            with suppress(FileExistsError):
                path.hardlink_to(temporary.path)
            temporary.close()
            temporary.path.unlink()


def modification_time_ns(entry: os.DirEntry[str]) -> int:
    """Return when a file was last modified. A link is not followed."""
    return entry.stat(follow_symlinks=False).st_mtime_ns


def quarantine_time_ns(entry: os.DirEntry[str]) -> int:
    """Return when a file was quarantined: the end of its name. Its modification time is that of its last use.

    A time that a wrong clock has put into a name, in the future or before 2000, does not count.
    """
    suffix = entry.name.rpartition(".")[2]
    if not suffix.isdecimal():
        return modification_time_ns(entry)
    moved_ns = entry.stat(follow_symlinks=False).st_ctime_ns
    return int(suffix) if len(suffix) < 20 and _YEAR_2000_NS <= int(suffix) <= moved_ns + _SKEW_NS else moved_ns


def sweep(
    directory: str | os.PathLike[str],
    prefix: str,
    before_ns: int,
    time_ns: Callable[[os.DirEntry[str]], int] = modification_time_ns,
) -> int:
    """Delete files in ``directory`` with this prefix that are older than ``before_ns``; return the bytes freed.

    ``time_ns`` returns the time of a file. Files that cannot be deleted are left for the next sweep.
    """
    freed_bytes = 0
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.startswith(prefix) and time_ns(entry) <= before_ns:
                    freed_bytes += delete(Path(entry.path))
    return freed_bytes


def delete(path: Path) -> int:
    """Delete a file, or a directory in its place; return its size, 0 if it does not exist."""
    try:
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode):
            from shutil import rmtree  # imports three compression libraries that a hit does not need

            rmtree(path, ignore_errors=True)
            return 0 if os.path.lexists(path) else found.st_size
        path.unlink()
    except FileNotFoundError:
        return 0
    return found.st_size


@frozen_dataclass
class Folders:
    """The directories below one root. ``durable`` are those of a private store whose names this process flushed."""

    root: Path
    shared: bool
    durable: set[Path] = field(default_factory=set, repr=False, compare=False)

    @contextmanager
    def inside(self, *names: str, make: bool = False) -> Iterator[Path]:
        """Yield a path for the directory ``names`` below the root that cannot be redirected while the block runs.

        ``make`` creates missing directories, and flushes each name even if it existed: another process may have created
        it a moment ago, before it is durable. In a private store, one flush of each by this process is enough.
        """
        if not self.shared:
            path = self.root.joinpath(*names)
            if make and (path not in self.durable or not path.is_dir()):
                self._make_private(names)
            yield path
            return
        with ExitStack() as stack:
            fd = os.open(self.root, _FLAGS)
            stack.callback(os.close, fd)
            for name in names:
                if make:
                    self._make(fd, name)
                    os.fsync(fd)
                fd = os.open(name, _FLAGS, dir_fd=fd)
                stack.callback(os.close, fd)
            yield Path(f"/proc/self/fd/{fd}")

    def _make_private(self, names: tuple[str, ...]) -> None:
        path = self.root
        for name in names:
            parent, path = path, path / name
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
                self.durable.discard(path)
            if path not in self.durable:
                sync_directory(parent)
                self.durable.add(path)

    def _make(self, parent: int, name: str) -> None:
        """Create a directory, unless it exists, with its final mode, atomically and independent of the umask."""
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            return
        root = os.open(self.root, _FLAGS)
        temporary = f"{TEMPORARY}{os.urandom(8).hex()}"
        try:
            os.mkdir(temporary, 0o700, dir_fd=root)
            fd = os.open(temporary, _FLAGS, dir_fd=root)
            try:
                mode = os.fstat(root).st_mode
                os.fchmod(fd, 0o2700 | (mode & 0o070) if mode & stat.S_ISGID else 0o700)
            finally:
                os.close(fd)
            try:
                os.rename(temporary, name, src_dir_fd=root, dst_dir_fd=parent)
            except OSError:
                with suppress(
                    FileNotFoundError
                ):  # NFS repeats a request whose reply was lost, and then finds no source
                    os.rmdir(temporary, dir_fd=root)
                # If several processes do this at once, one of them wins.
                if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    raise
        finally:
            os.close(root)


_POLL_S = 0.02
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@contextmanager
def hold(path: Path, *, timeout_s: float) -> Iterator[int]:
    """Hold the lock file at ``path``, waiting up to ``timeout_s`` seconds for it (0: do not wait).

    Yields its descriptor: a child process that inherits it keeps the lock if this process ends.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if file_mode(path.parent) != 0o600:
        make_permanent(path)  # with its final mode at once, or another member could fail to open it
    fd, opened = os.open(path, _LOCK_FLAGS, 0o600), _open_descriptors()
    opened.add(fd)
    end_s = time.monotonic() + timeout_s
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise LockTimeoutError(str(path), timeout_s) from error
                time.sleep(min(_POLL_S, left_s))
        yield fd
    finally:
        if fd in opened:  # not in a forked child, where the descriptor may belong to another file
            opened.discard(fd)
            # A restarted server may have lost the lock and return EIO; the protected work is done.
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # also releases it for a child that has not closed it yet
            with suppress(OSError):
                os.close(fd)


@cache
def _open_descriptors() -> set[int]:
    """Return the descriptors of this process's lock files, which a forked child closes: it would hold the locks too."""
    opened: set[int] = set()

    def close_all() -> None:
        for fd in opened:
            os.close(fd)
        opened.clear()

    os.register_at_fork(after_in_child=close_all)
    return opened


def why_not_exclusive(directory: Path, notes: Path, *, lock: Callable[[int, int], None] = fcntl.flock) -> str | None:
    """Return why nothing should be built in ``directory``, or None. ``notes`` is a private directory on this host."""
    try:
        note = notes / f"locks-exclude-{directory.stat().st_dev:x}"
        if note.exists():
            return None
        why = try_locks(directory, lock=lock)
    except OSError as error:
        return f"its locks cannot be tested: {error.strerror}"
    if why is None:
        with suppress(OSError):
            note.touch(mode=0o600)
    return why


def try_locks(directory: Path, *, lock: Callable[[int, int], None] = fcntl.flock) -> str | None:
    """Lock one file through two descriptors; return what went wrong, or None if the second lock was refused."""
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
    return "two descriptors held the same lock at once"


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
