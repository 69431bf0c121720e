"""Paths: the user's cache and configuration directories, atomic writes, and stat fingerprints of files.

No path falls back to the working directory: without a home directory, as in a container for a user ID without an
account, ``~`` is not expanded and would name a directory in it, which another user may control.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import SettingsError

PROGRAM_SUFFIXES = (".pt2", ".onnx")
"""Suffixes of the files of programs. Other files, such as TorchScript, are opened to find out what they are."""

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
SETTLED_NS = 2_000_000_000
"""Worst timestamp granularity of a file system: two writes within it may have the same time."""


def cache_folder(name: str) -> Path:
    """Return the cache directory ``name``, in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    from platformdirs import user_cache_path  # 10 ms, which a program in a file does not need

    return _folder(user_cache_path, name, Path("/.cache"))


def config_folder(name: str) -> Path:
    """Return the configuration directory ``name``, in ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    from platformdirs import user_config_path

    return _folder(user_config_path, name, Path("/.config"))


def _folder(find: Callable[..., Path], name: str, without_home: Path) -> Path:
    """Return a directory of the user's; without a home directory, one of the root's, which others cannot control."""
    try:
        path = find(name, appauthor=False)
    except RuntimeError:  # no home directory: platformdirs 4.14 raises, older versions return a path with ~
        path = Path()
    return path if path.is_absolute() else without_home / name


def absolute(path: str | os.PathLike[str], where: str) -> Path:
    """Expand ``~`` and return an absolute path.

    Raises:
        SettingsError: it is not a valid path; the message names ``where``.
    """
    try:
        expanded = Path(path).expanduser().absolute()
        has_null = b"\0" in os.fsencode(expanded)
    except (OSError, RuntimeError, ValueError) as error:  # no working directory, no home, unencodable characters
        raise SettingsError(where, f"{str(path)!r} is not a valid path: {error}") from error
    if has_null:
        raise SettingsError(where, f"{str(path)!r} is not a valid path: it contains a null byte")
    return expanded


def absolute_paths(paths: Iterable[str | os.PathLike[str]], where: str) -> tuple[Path, ...]:
    """Return directories as absolute paths; ``where`` is the name of the setting.

    Raises:
        SettingsError: it is a single path, or an element is not a path.
    """
    if isinstance(paths, (str, os.PathLike)):
        raise SettingsError(where, f"expected a list of directories, got {paths!r}")
    paths = tuple(paths)
    if wrong := [path for path in paths if not isinstance(path, (str, os.PathLike))]:
        raise SettingsError(where, f"expected directories, got {wrong[0]!r}")
    return tuple(absolute(path, where) for path in paths)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path, renamed to ``path`` on success and deleted on failure."""
    refuse_special_file(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with explain_full_disk(path, f"free space in {path.absolute().parent}, or use a file on another disk"):
            yield temporary
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def refuse_special_file(path: Path) -> None:
    """Reject the path of a directory, device, pipe or socket: a rename would replace ``/dev/null``.

    A file that does not exist is accepted.

    Raises:
        OSError: ``path`` exists and is not a regular file, or its directory does not exist or cannot be read.
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
def explain_full_disk(path: Path, remedy: str) -> Iterator[None]:
    """Add the file and a remedy to the error of a full disk; the error of a write to an open file names neither.

    Raises:
        OSError: the disk or the quota is full; other errors are not changed.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise OSError(error.errno, f"{os.strerror(error.errno)}; {remedy}", str(path)) from error


@frozen_dataclass
class StatFingerprint:
    """Device and inode, size, and the times of the last write and the last inode change.

    A program can set a write time to any value, but not a change time.
    """

    device: int
    inode: int
    size_bytes: int
    written_ns: int
    changed_ns: int

    @classmethod
    def of(cls, descriptor: int) -> StatFingerprint:
        """Return the fingerprint of an open file."""
        status = os.fstat(descriptor)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @classmethod
    def from_document(cls, written: list[int]) -> StatFingerprint:
        """Parse the list of numbers written by ``document``."""
        return cls(*map(int, written))

    def document(self) -> list[int]:
        """Return the fingerprint as a list of numbers."""
        return list(astuple(self))

    def is_settled(self, read_ns: int) -> bool:
        """Return whether any write after ``read_ns`` changes the fingerprint.

        The clock of a file system has steps: a write shortly after the last one can leave the time as it is.
        """
        return max(self.written_ns, self.changed_ns) + SETTLED_NS < read_ns
