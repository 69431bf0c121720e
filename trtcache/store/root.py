"""The directory of a store: make it, recognise it, and say whether it is safe to load engines from.

A crash at any instant while a store is made leaves a directory that is missing, empty but for temporary files, or a
store: the marker is renamed into place complete, and everything else in the directory is made when it is needed.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from trtcache.errors import FormatVersionError, NotAStoreError, UnsafeStoreError
from trtcache.store.files import TEMPORARY, publish_bytes, sync_directory

MARKER: Final = "trtcache-store.json"
TAG: Final = "CACHEDIR.TAG"
STORE_FORMAT: Final = 1

_TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# This is the cache of trtcache: everything in it can be built again.
# For what cache directory tags are, see https://bford.info/cachedir/
"""
_MAX_MARKER_BYTES = 4096
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}


def prepare(root: Path, *, readonly: bool) -> bool:
    """Make ``root`` a store if it is missing or empty, check it, and return whether it can be written.

    Raises:
        NotAStoreError: it holds something else, or cannot be made or read.
        FormatVersionError: it is a store of a later format.
        UnsafeStoreError: another user owns it or may write to it.
    """
    try:
        if root.is_symlink() and not root.exists():
            raise NotAStoreError(str(root), f"it is a link to {root.readlink()}, which is not there")
        if not readonly:
            _make(root)
        if not root.exists():
            return False
        _check_owner(root, root.stat())
        writable = not readonly and os.access(root, os.W_OK | os.X_OK, effective_ids=True)
        _check_marker(root, writable=writable)
        if writable and not (root / TAG).exists():
            publish_bytes(root / TAG, _TAG_TEXT)
    except OSError as error:
        raise NotAStoreError(str(root), f"it cannot be made or read ({error.strerror})") from error
    return writable


def is_store(root: Path) -> bool:
    """Return whether ``root`` is a store already; an empty directory only may become one."""
    return (root / MARKER).is_file()


def _make(root: Path) -> None:
    if root.exists():
        return
    for missing in reversed([root, *(parent for parent in root.parents if not parent.exists())]):
        with suppress(FileExistsError):
            missing.mkdir(mode=0o700)
        sync_directory(missing.parent)


def _check_owner(root: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise NotAStoreError(str(root), "it is not a directory")
    if found.st_uid not in (os.geteuid(), 0):
        raise UnsafeStoreError(str(root), f"it belongs to user {found.st_uid}; name a directory of your own")
    if found.st_mode & 0o022:
        raise UnsafeStoreError(str(root), f"other users may write to it; run: chmod go-w {root}")


def _check_marker(root: Path, *, writable: bool) -> None:
    raw = _read_marker(root)
    names = [] if raw is not None else os.listdir(root)  # noqa: PTH208  # names alone are wanted
    if MARKER in names:
        raw = _read_marker(root)  # another process has made the store meanwhile
    if raw is not None:
        _check_format(root, raw)
        return
    for name in names:
        if name != TAG and not name.startswith(TEMPORARY):
            raise NotAStoreError(str(root), f"it has no {MARKER} and holds {name!r}; name an empty directory")
    if writable:
        publish_bytes(root / MARKER, b'{"format": %d}\n' % STORE_FORMAT)


def _read_marker(root: Path) -> bytes | None:
    try:
        fd = os.open(root / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(_MAX_MARKER_BYTES)


def _check_format(root: Path, raw: bytes) -> None:
    found = _format_of(raw)
    if found is None:
        raise NotAStoreError(str(root), f"its {MARKER} is damaged; remove that file if the directory is a cache")
    if found > STORE_FORMAT:
        raise FormatVersionError(str(root), found, STORE_FORMAT)


def _format_of(raw: bytes) -> int | None:
    try:
        found = json.loads(raw)["format"]
    except (KeyError, TypeError, ValueError):
        return None
    return found if type(found) is int and found > 0 else None


def is_private(root: Path) -> bool:
    """Return whether only this user reaches ``root`` and it is on a local file system: then files may be mapped."""
    try:
        found = root.stat()
    except OSError:
        return False
    owned = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return owned and filesystem_type(root) in _LOCAL


def filesystem_type(path: Path) -> str:
    """Return the type of the file system that ``path`` is on (``ext4``, ``nfs4``), or ``unknown``.

    From the kernel's table of mounts: Python has no ``f_type`` in its ``statvfs``.
    """
    where, best, found = str(path.resolve()), "", "unknown"
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return found
    for line in table.splitlines():
        mount, _, source = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount.split(" ")[4])
        below = where == point or where.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best):
            best, found = point, source.split(" ")[0]
    return found
