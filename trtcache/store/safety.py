"""Check that a directory is safe to load engines, which are code, from: its owner and who may write to it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.errors import NotAStoreError, UnsafeStoreError
from trtcache.store.marker import declares_shared, read_marker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

_MOST_LINKS = 40  # the kernel's limit
_SHARE = "or let its owner create a shared one: trtcache init --shared --group GROUP"


def check_safety(root: Path, way: Path) -> bool:
    """Check that only the intended users can write to ``root``, and return whether it was declared shared.

    ``way`` is the path as given: no other user may own a link on it, or be able to replace one.

    Raises:
        NotAStoreError: it is not a directory.
        UnsafeStoreError: another user owns it or may write to it, or to a directory above it.
        OSError: it, its marker or a directory above it cannot be read.
    """
    found = root.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotAStoreError(str(root), "it is not a directory")
    shared = _is_declared_shared(root, found)
    if shared:
        _check_shared(root, found)
    else:
        _check_private(root, found)
    group = found.st_gid if shared else None
    owners = _trusted_owners() | ({found.st_uid} if shared else set())
    _check_above(root, owners, group)
    _check_links(way, owners, group)
    return shared


def check_way(way: Path) -> None:
    """Check that no other user controls the path of a directory, which need not exist yet.

    Raises:
        UnsafeStoreError: another user owns a link on it, or can replace one.
        OSError: it cannot be read.
    """
    _check_links(way, _trusted_owners(), None)


def _is_declared_shared(root: Path, found: os.stat_result) -> bool:
    """Return whether the owner of the directory declared it shared; a member who can write to it cannot."""
    marker = read_marker(root)
    if marker is None or not declares_shared(marker[0]):
        return False
    status = marker[1]
    if status.st_uid not in (found.st_uid, 0) or status.st_mode & 0o022 or status.st_nlink > 1:
        why = "it is declared shared, but a user other than its owner could have written that"
        raise UnsafeStoreError(str(root), f"{why}; its owner can run: trtcache init --shared --group GROUP {root}")
    return True


def _check_private(root: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        why = f"it belongs to user {found.st_uid}; use a directory of your own, {_SHARE}"
        raise UnsafeStoreError(str(root), why)
    if found.st_mode & 0o022:
        why = f"other users may write to it; run: chmod go-w {root}"
        raise UnsafeStoreError(str(root), f"{why}, {_SHARE} NEW_DIRECTORY")


def _check_shared(root: Path, found: os.stat_result) -> None:
    if found.st_mode & 0o002:
        raise UnsafeStoreError(str(root), f"users outside its group may write to it; run: chmod o-w {root}")
    if not found.st_mode & stat.S_ISGID:
        raise UnsafeStoreError(str(root), f"it was declared shared but is no longer setgid; run: chmod g+s {root}")


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


def _check_links(way: Path, owners: AbstractSet[int], group: int | None) -> None:
    """Reject a path with a link that another user controls."""
    for link in _links(way):
        owner = link.lstat().st_uid
        if owner not in owners:
            raise UnsafeStoreError(
                str(way), f"{link} on its path is a link owned by user {owner}; use {link.resolve()} instead"
            )
        _check_above(link, owners, group)


def _links(way: Path) -> Iterator[Path]:
    """Yield the symbolic links on the path, each by a path without links in its directories."""
    here, names, count = Path("/"), list(way.absolute().parts[:0:-1]), 0
    while names:
        name = names.pop()
        path = here.parent if name == ".." else here / name
        if not path.is_symlink():
            here = path
            continue
        count += 1
        if count > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(way))
        yield path
        target = path.readlink()
        here = Path("/") if target.is_absolute() else here
        names.extend(part for part in reversed(target.parts) if part != "/")
