"""Whether a directory can be trusted to hold engines, which are code: who owns it, and who may write to it."""

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

_MOST_LINKS = 40  # as many as the kernel follows
_SHARE = "or let its owner make a shared one: trtcache init --shared --group GROUP"


def check_safety(root: Path, way: Path) -> bool:
    """Return whether ``root`` was declared shared, after making sure that only those it is meant for can write to it.

    ``way`` is the path that was given for it: nobody else may have made a link on it, or be able to exchange one.

    Raises:
        NotAStoreError: it is not a directory.
        UnsafeStoreError: another user owns it or may write to it, or to a directory above it.
        OSError: it, its marker or a directory above it cannot be looked at.
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
    """Make sure that nobody else leads the way to a directory of this user's, which need not be there yet.

    Raises:
        UnsafeStoreError: another user made a link on it, or can exchange one.
        OSError: it cannot be looked at.
    """
    _check_links(way, _trusted_owners(), None)


def _is_declared_shared(root: Path, found: os.stat_result) -> bool:
    """Return whether the owner of the directory declared it shared; a member who can write to it cannot.

    Raises:
        UnsafeStoreError: somebody else did.
        OSError: the marker cannot be read.
    """
    marker = read_marker(root)
    if marker is None or not declares_shared(marker[0]):
        return False
    said = marker[1]
    if said.st_uid not in (found.st_uid, 0) or said.st_mode & 0o022 or said.st_nlink > 1:
        why = "it says that it is shared, but others than its owner could have written that"
        raise UnsafeStoreError(str(root), f"{why}; its owner can: trtcache init --shared --group GROUP {root}")
    return True


def _check_private(root: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        why = f"it belongs to user {found.st_uid}; name a directory of your own, {_SHARE}"
        raise UnsafeStoreError(str(root), why)
    if found.st_mode & 0o022:
        why = f"other users may write to it; run: chmod go-w {root}"
        raise UnsafeStoreError(str(root), f"{why}, {_SHARE} NEW_DIRECTORY")


def _check_shared(root: Path, found: os.stat_result) -> None:
    if found.st_mode & 0o002:
        raise UnsafeStoreError(str(root), f"users outside its group may write to it; run: chmod o-w {root}")
    if not found.st_mode & stat.S_ISGID:
        raise UnsafeStoreError(str(root), f"it was declared shared and is not setgid any more; run: chmod g+s {root}")


def _trusted_owners() -> AbstractSet[int]:
    """Return whose directories may lie above a store: root's, this user's, and in a user namespace the unmapped ones'.

    There the directories of the machine's root are seen as those of the overflow user (user_namespaces(7)).
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
    """Refuse a directory above the root in which another user could put one of his own in the store's place.

    Who may write to a sticky directory, such as /tmp, can rename nothing of others in it.

    Raises:
        UnsafeStoreError: there is one.
        OSError: one cannot be looked at.
    """
    for above in root.parents:
        found = above.stat()
        if found.st_uid not in owners:
            raise UnsafeStoreError(str(root), f"{above}, in which it lies, belongs to user {found.st_uid}")
        if found.st_mode & stat.S_ISVTX:
            continue
        own_group = found.st_gid == group or found.st_gid == found.st_uid == os.geteuid()  # a user's private group
        if found.st_mode & 0o002 or (found.st_mode & 0o020 and not own_group):
            why = f"other users may write to {above}, in which it lies, and could put another in its place"
            raise UnsafeStoreError(str(root), f"{why}; run: chmod go-w {above}, or chmod +t {above}")


def _check_links(way: Path, owners: AbstractSet[int], group: int | None) -> None:
    """Refuse a path with a link that leads where another user wants: to any directory that its owner has.

    Raises:
        UnsafeStoreError: there is one.
        OSError: the path cannot be looked at, or has no end.
    """
    for link in _links(way):
        owner = link.lstat().st_uid
        if owner not in owners:
            raise UnsafeStoreError(
                str(way), f"{link}, on the way there, is a link of user {owner}; name {link.resolve()}"
            )
        _check_above(link, owners, group)


def _links(way: Path) -> Iterator[Path]:
    """Yield the symbolic links on the way, each by a path that has none in its directories.

    Raises:
        OSError: there are more than the kernel would follow.
    """
    here, names, count = Path("/"), list(way.absolute().parts[:0:-1]), 0
    while names:
        name = names.pop()
        one = here.parent if name == ".." else here / name
        if not one.is_symlink():
            here = one
            continue
        count += 1
        if count > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(way))
        yield one
        target = one.readlink()
        here = Path("/") if target.is_absolute() else here
        names.extend(part for part in reversed(target.parts) if part != "/")
