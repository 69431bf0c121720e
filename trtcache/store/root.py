"""The directory of a store: make it, recognise it, and say whether it is safe to load engines from.

A crash at any instant while a store is made leaves a directory that is missing, empty but for temporary files, or a
store: the marker is renamed into place complete, and everything else in the directory is made when it is needed.
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
    """A checked root: where it really is, whether this user may write to it, and whether it was declared shared."""

    root: Path
    writable: bool
    shared: bool = False


def prepare(root: Path, *, readonly: bool) -> StoreRoot:
    """Make ``root`` a store if it is missing or empty, and check it.

    Raises:
        NotAStoreError: it holds something else, or cannot be made or read.
        FormatVersionError: it is a store of a later format.
        UnsafeStoreError: another user owns it, may write to it undeclared, or leads there by a link.
    """
    try:
        if root.is_symlink() and not root.exists():
            raise NotAStoreError(str(root), f"it is a link to {root.readlink()}, which is not there")
        if not readonly:
            make_root(root)
        real = root.resolve()  # a link on the way could lead elsewhere by the next call
        if not real.exists():
            return StoreRoot(real, writable=False)
        shared = check_safety(real, root)
        writable = not readonly and os.access(real, os.W_OK | os.X_OK, effective_ids=True)
        _check_marker(real, writable=writable)
        if writable and not (real / TAG).exists():
            publish_bytes(real / TAG, _TAG_TEXT)
    except OSError as error:
        raise NotAStoreError(str(root), f"it cannot be made or read ({error.strerror})") from error
    return StoreRoot(real, writable, shared)


def is_store(root: Path) -> bool:
    """Return whether ``root`` is a store already; an empty directory only may become one."""
    return (root / MARKER).is_file()


def make_root(root: Path, *, parents_mode: int = 0o700) -> None:
    """Make a directory that is missing, and those above it, for this user alone.

    Raises:
        UnsafeStoreError: another user leads the way to it by a link.
        OSError: one cannot be made.
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
    names = [] if found else os.listdir(root)  # noqa: PTH208  # names alone are wanted
    if MARKER in names:
        found = read_marker(root)  # another process has made the store meanwhile
    if found is not None:
        _check_format(root, found[0])
        return
    for name in names:
        if name != TAG and not name.startswith(TEMPORARY):
            raise NotAStoreError(str(root), f"it has no {MARKER} and holds {name!r}; name an empty directory")
    if writable:
        write_marker(root)


def _check_format(root: Path, raw: bytes) -> None:
    found = format_of(raw)
    if found is None:
        raise NotAStoreError(str(root), f"its {MARKER} is damaged; remove that file if the directory is a cache")
    if found > STORE_FORMAT:
        raise FormatVersionError(str(root), found, STORE_FORMAT)


def is_private(root: Path) -> bool:
    """Return whether only this user reaches ``root`` and it is on a local file system: then files may be mapped."""
    try:
        found = root.stat()
    except OSError:
        return False
    owned = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return owned and is_local(root)


def is_immutable(path: Path) -> bool:
    """Return whether ``path`` is on a file system that nobody can write to, by its very format."""
    return filesystem_type(path) in _IMMUTABLE


def is_local(path: Path) -> bool:
    """Return whether ``path`` is on a file system of this machine alone."""
    return filesystem_type(path) in _LOCAL


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
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), mount.split(" ")[4])
        below = where == point or where.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best):
            best, found = point, source.split(" ")[0]
    return found


def private_index_root(root: Path) -> Path:
    """Return the directory of this user's own index, on this host, of a store; made if it can be.

    The user's cache folder may itself be on a network file system, so hosts have a directory each.
    """
    name = hash_bytes(os.fsencode(root) + b"\0" + os.fsencode(os.uname().nodename)).hex()[:32]
    path = cache_folder("trtcache-indexes") / name
    with suppress(OSError, UnsafeStoreError):
        make_root(path)
    return path
