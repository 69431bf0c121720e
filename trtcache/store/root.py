"""The root directory of a store: create it, recognize it, and check that it is safe to load engines from.

A crash while a store is created leaves a directory that is missing, empty except for temporary files, or a store: the
marker is renamed into place complete, and everything else is created on demand.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trtcache.config.folders import cache_folder
from trtcache.digests import hash_bytes
from trtcache.errors import FormatVersionError, NotAStoreError, UnsafeStoreError
from trtcache.store.files import TEMPORARY, publish_bytes, sync_directory
from trtcache.store.marker import MARKER, STORE_FORMAT, format_of, read_marker, write_marker
from trtcache.store.safety import check_safety, check_way

TAG: Final = "CACHEDIR.TAG"

_TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# This is the cache of trtcache: everything in it can be built again.
# For what cache directory tags are, see https://bford.info/cachedir/
"""
_ESCAPED = re.compile(r"\\([0-7]{3})")
_IMMUTABLE = {"cramfs", "erofs", "iso9660", "romfs", "squashfs"}
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"} | _IMMUTABLE


@dataclass(frozen=True, slots=True)
class StoreRoot:
    """A checked root: its resolved path, whether this user may write to it, and whether it was declared shared."""

    root: Path
    writable: bool
    shared: bool = False


def prepare(root: Path, *, readonly: bool) -> StoreRoot:
    """Create a store at ``root`` if it is missing or empty, and check it.

    Raises:
        NotAStoreError: it holds something else, or cannot be created or read.
        FormatVersionError: it is a store of a newer format.
        UnsafeStoreError: another user owns it, may write to it undeclared, or owns a link on its path.
    """
    try:
        if root.is_symlink() and not root.exists():
            raise NotAStoreError(str(root), f"it is a link to {root.readlink()}, which does not exist")
        if not readonly:
            make_root(root)
        real = root.resolve()  # a link on the path could be changed before the next call
        if not real.exists():
            return StoreRoot(real, writable=False)
        shared = check_safety(real, root)
        writable = not readonly and os.access(real, os.W_OK | os.X_OK, effective_ids=True)
        _check_marker(real, writable=writable)
        if writable and not (real / TAG).exists():
            publish_bytes(real / TAG, _TAG_TEXT)
    except OSError as error:
        raise NotAStoreError(str(root), f"it cannot be created or read ({error.strerror})") from error
    return StoreRoot(real, writable, shared)


def is_store(root: Path) -> bool:
    """Return whether ``root`` is already a store; an empty directory is not yet one."""
    return (root / MARKER).is_file()


def make_root(root: Path, *, parents_mode: int = 0o700) -> None:
    """Create a missing directory for this user alone, and its missing parents with ``parents_mode``.

    Raises:
        UnsafeStoreError: another user owns a link on the path.
        OSError: a directory cannot be created.
    """
    if root.exists():
        return
    check_way(root)
    for missing in reversed([root, *(parent for parent in root.parents if not parent.exists())]):
        with suppress(FileExistsError):
            missing.mkdir(mode=0o700)
            if missing != root and parents_mode != 0o700:
                missing.chmod(parents_mode)
        sync_directory(missing.parent)


def _check_marker(root: Path, *, writable: bool) -> None:
    found = read_marker(root)
    names = [] if found else os.listdir(root)  # noqa: PTH208  # only the names are needed
    if MARKER in names:
        found = read_marker(root)  # another process has created the store meanwhile
    if found is not None:
        _check_format(root, found[0])
        return
    # Not a store yet. Only an empty directory may become one.
    for name in names:
        if name != TAG and not name.startswith(TEMPORARY):
            raise NotAStoreError(str(root), f"it has no {MARKER} and contains {name!r}; use an empty directory")
    if writable:
        write_marker(root)


def _check_format(root: Path, raw: bytes) -> None:
    found = format_of(raw)
    if found is None:
        raise NotAStoreError(str(root), f"its {MARKER} is damaged; remove that file if the directory is a cache")
    if found > STORE_FORMAT:
        raise FormatVersionError(str(root), found, STORE_FORMAT)


def is_private(root: Path) -> bool:
    """Return whether only this user can access ``root`` and it is on a local file system: then files may be mapped."""
    try:
        found = root.stat()
    except OSError:
        return False
    owned = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return owned and is_local(root)


def is_immutable(path: Path) -> bool:
    """Return whether ``path`` is on a file system with a read-only format."""
    return filesystem_type(path) in _IMMUTABLE


def is_local(path: Path) -> bool:
    """Return whether ``path`` is on a local file system."""
    return filesystem_type(path) in _LOCAL


def filesystem_type(path: Path) -> str:
    """Return the type of the file system that ``path`` is on (``ext4``, ``nfs4``), or ``unknown``.

    Read from the kernel's mount table: Python's ``statvfs`` has no ``f_type``.
    """
    where, best, found = str(path.resolve()), "", "unknown"
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return found
    for line in table.splitlines():
        mount, _, source = line.partition(" - ")
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), mount.split(" ")[4])
        below = where == point or where.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best):
            best, found = point, source.split(" ")[0]
    return found


def private_index_root(root: Path) -> Path:
    """Return the directory of this user's private index of a store on this host, and create it if possible.

    The user's cache folder may itself be on a network file system, so each host has its own directory.
    """
    name = hash_bytes(os.fsencode(root) + b"\0" + os.fsencode(os.uname().nodename)).hex()[:32]
    path = cache_folder("trtcache-indexes") / name
    with suppress(OSError, UnsafeStoreError):
        make_root(path)
    return path
