"""The root directory of a store: create it, recognize it, share it, and check that it is safe to load engines from.

Engines are code, so the owner of the directory and the users who may write to it or replace it matter. A crash while a
store is created leaves a directory that is missing, empty except for temporary files, or a store: the marker, which
identifies a store and declares whether it is shared, is renamed into place complete; the rest is created on demand.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import cache_folder
from trtcache.digests import hash_bytes
from trtcache.errors import FormatVersionError, NotAStoreError, SettingsError, UnsafeStoreError
from trtcache.store.files import TEMPORARY, Folders, publish_bytes, sync_directory

MARKER: Final = "trtcache-store.json"
STORE_FORMAT: Final = 1
TAG: Final = "CACHEDIR.TAG"

_MAX_BYTES = 4096
_MOST_LINKS = 40  # the kernel's limit
_LAST_ID = (1 << 32) - 2  # the next ID means "unchanged" to chown
_FOLDERS = ("entries", "pins", "locks", "quarantine", "events")
_SHARE = "or let its owner create a shared one: trtcache init --shared --group GROUP"
_TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# This is the cache of trtcache: everything in it can be built again.
# For what cache directory tags are, see https://bford.info/cachedir/
"""
_ESCAPED = re.compile(r"\\([0-7]{3})")
_IMMUTABLE = {"cramfs", "erofs", "iso9660", "romfs", "squashfs"}
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"} | _IMMUTABLE


@frozen_dataclass
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
        try:
            real.lstat()
        except FileNotFoundError:
            return StoreRoot(real, writable=False)
        shared = check_safety(real, root)
        writable = not readonly and os.access(real, os.W_OK | os.X_OK, effective_ids=True)
        _check_marker(real, writable=writable)
        if writable and not (real / TAG).exists():
            publish_bytes(real / TAG, _TAG_TEXT)
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        why = "there is no room for it" if is_full else "it cannot be created or read"
        raise NotAStoreError(str(root), f"{why} ({error.strerror})") from error
    return StoreRoot(real, writable, shared)


def is_store(root: Path) -> bool:
    """Return whether ``root`` is already a store; an empty directory is not yet one.

    Raises:
        NotAStoreError: this user may not enter it.
    """
    try:
        return (root / MARKER).is_file()
    except OSError as error:
        raise NotAStoreError(str(root), f"it cannot be read ({error.strerror})") from error


def make_root(root: Path, *, parents_mode: int = 0o700) -> None:
    """Create a missing directory for this user alone, and its missing parents with ``parents_mode``."""
    if root.exists():
        return
    check_links(root)
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
        version = found[0].get("format")
        if type(version) is not int or version <= 0:
            raise NotAStoreError(str(root), f"its {MARKER} is damaged; remove that file if the directory is a cache")
        if version > STORE_FORMAT:
            raise FormatVersionError(str(root), version, STORE_FORMAT)
        return
    # Not a store yet. Only an empty directory may become one, or a private store that lost its marker: programs that
    # delete old files from scratch file systems take the marker first, which is never written again.
    lost_marker = "entries" in names and not root.stat().st_mode & stat.S_ISGID
    for name in names:
        if not _is_ignored(name) and not (lost_marker and _is_of_store(name)):
            raise NotAStoreError(str(root), f"it has no {MARKER} and contains {name!r}; use an empty directory")
    if writable:
        write_marker(root)


def _is_ignored(name: str) -> bool:
    """Return whether a directory that has this name in it counts as empty: a new ext4 volume has ``lost+found``."""
    return name in (TAG, "lost+found") or name.startswith(TEMPORARY)


def _is_of_store(name: str) -> bool:
    return name in _FOLDERS or name == "outbox" or name.startswith("index.sqlite")


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


def read_marker(root: Path) -> tuple[dict[str, Any], os.stat_result] | None:
    """Return the marker's fields, empty if it is damaged, and its file status; None if there is no marker."""
    try:
        fd = os.open(root / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        raw = file.read(_MAX_BYTES) if stat.S_ISREG(status.st_mode) else b""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
    return (document if isinstance(document, dict) else {}), status


def write_marker(root: Path, *, shared: bool = False) -> None:
    """Write the marker. The marker of a shared store is readable by all and writable by its owner only."""
    text = b'{"format": %d, "shared": true}\n' if shared else b'{"format": %d}\n'
    publish_bytes(root / MARKER, text % STORE_FORMAT, mode=0o644 if shared else None)


def check_safety(root: Path, given_path: Path) -> bool:
    """Check that only the intended users can write to ``root``, and return whether it was declared shared.

    ``given_path`` is the path before links are resolved: no other user may own a link on it, or be able to replace one.

    Raises:
        NotAStoreError: it is not a directory.
        UnsafeStoreError: another user owns it or may write to it, or to a directory above it.
        OSError: it, its marker or a directory above it cannot be read.
    """
    found = root.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotAStoreError(str(root), "it is not a directory")
    marker = read_marker(root)
    shared = marker is not None and marker[0].get("shared") is True
    if marker is not None and shared:
        # Only the owner of the directory declares it shared, not a member who can write to it.
        status = marker[1]
        if status.st_uid not in (found.st_uid, 0) or status.st_mode & 0o022 or status.st_nlink > 1:
            why = "it is declared shared, but a user other than its owner could have written that"
            raise UnsafeStoreError(str(root), f"{why}; its owner can run: trtcache init --shared --group GROUP {root}")
        if found.st_mode & 0o002:
            raise UnsafeStoreError(str(root), f"users outside its group may write to it; run: chmod o-w {root}")
        if not found.st_mode & stat.S_ISGID:
            raise UnsafeStoreError(str(root), f"it was declared shared but is no longer setgid; run: chmod g+s {root}")
    elif found.st_uid not in (os.geteuid(), 0):
        why = f"it belongs to user {found.st_uid}; use a directory of your own, {_SHARE}"
        raise UnsafeStoreError(str(root), why)
    elif found.st_mode & 0o022:
        why = f"other users may write to it; run: chmod go-w {root}"
        raise UnsafeStoreError(str(root), f"{why}, {_SHARE} NEW_DIRECTORY")
    group = found.st_gid if shared else None
    owners = _trusted_owners() | ({found.st_uid} if shared else set())
    _check_above(root, owners, group)
    _check_links(given_path, owners, group)
    return shared


def check_links(given_path: Path) -> None:
    """Check that no other user controls the path of a directory, which need not exist yet."""
    _check_links(given_path, _trusted_owners(), None)


def _trusted_owners() -> AbstractSet[int]:
    """Return the users who may own directories above a store: root, this user, and the overflow user.

    In a user namespace, root's directories appear to belong to the overflow user (user_namespaces(7)).
    """
    owners = {0, os.geteuid()}
    try:
        mapped = sum(int(line.split()[2]) for line in Path("/proc/self/uid_map").read_text().splitlines())
        if mapped < (1 << 32) - 1:
            owners.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    except (OSError, ValueError, IndexError):
        return owners
    return owners


def _check_above(root: Path, owners: AbstractSet[int], group: int | None) -> None:
    """Reject a directory above the root in which another user could replace the store's directory.

    Users who can write to a sticky directory, such as /tmp, cannot rename other users' files in it.
    """
    for above in root.parents:
        found = above.stat()
        if found.st_uid not in owners:
            raise UnsafeStoreError(str(root), f"its parent {above} belongs to user {found.st_uid}")
        if found.st_mode & stat.S_ISVTX:
            continue
        own_group = found.st_gid == group or found.st_gid == found.st_uid == os.geteuid()  # a user's private group
        if found.st_mode & 0o002 or (found.st_mode & 0o020 and not own_group):
            why = f"other users may write to its parent {above} and could replace it"
            raise UnsafeStoreError(str(root), f"{why}; run: chmod go-w {above}, or chmod +t {above}")


def _check_links(given_path: Path, owners: AbstractSet[int], group: int | None) -> None:
    """Reject a path with a link that another user controls."""
    # Each link is looked at by a path without links in its directories.
    here, names, count = Path("/"), list(given_path.absolute().parts[:0:-1]), 0
    while names:
        name = names.pop()
        link = here.parent if name == ".." else here / name
        if not link.is_symlink():
            here = link
            continue
        count += 1
        if count > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(given_path))
        owner = link.lstat().st_uid
        if owner not in owners:
            why = f"{link} on its path is a link owned by user {owner}; use {link.resolve()} instead"
            raise UnsafeStoreError(str(given_path), why)
        _check_above(link, owners, group)
        target = link.readlink()
        here = Path("/") if target.is_absolute() else here
        names.extend(part for part in reversed(target.parts) if part != "/")


def group_id(group: str) -> int:
    """Return the ID of a group, given its name or number.

    Raises:
        SettingsError: the group does not exist, or the number is out of range.
    """
    import grp  # only needed to create a shared store

    if group.isdecimal() and group.isascii():
        if int(group) > _LAST_ID:
            raise SettingsError("--group", f"{group} is not a valid group ID")
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise SettingsError("--group", f"there is no group {group!r}; 'groups' lists yours") from error


def share(root: Path, gid: int) -> None:
    """Create a store at ``root``, which is missing or empty, whose files every member of the group can use.

    A store that this group already shares is unchanged; an interrupted creation is completed.

    Raises:
        NotAStoreError: it holds files, such as a private store, or cannot be created.
        UnsafeStoreError: another user owns it, may write to a directory above it, or owns a link on its path.
    """
    try:
        make_root(root, parents_mode=0o755)
        given_path, root = root, root.resolve()
        check_links(given_path)
        marker, found = read_marker(root), root.stat()
        if marker is None:
            for path in root.iterdir():
                if not _is_ignored(path.name):
                    raise NotAStoreError(str(root), f"it contains {path.name!r}; use a new directory")
        elif marker[0].get("shared") is not True:
            raise NotAStoreError(str(root), "it is already a private store; use a new directory for the shared one")
        if found.st_uid not in (os.geteuid(), 0):
            why = f"it belongs to user {found.st_uid}, who is the only one who can share it"
            raise UnsafeStoreError(str(root), why)
        try:
            os.chown(root, -1, gid)
        except PermissionError as error:
            why = f"you are not in group {gid}, so you cannot give it a directory; ask a member, or root"
            raise NotAStoreError(str(root), why) from error
        # The group gets write permission when the marker is there.
        root.chmod(0o2700)
        write_marker(root, shared=True)
        root.chmod(0o2770)
        for name in _FOLDERS:
            with Folders(root, shared=True).inside(name, make=True):
                pass
    except OSError as error:
        raise NotAStoreError(str(root), f"it cannot become a shared store ({error.strerror})") from error
    check_safety(root, given_path)
