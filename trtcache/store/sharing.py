"""Create a store that is shared by the members of a group."""

from __future__ import annotations

import grp
import os
from typing import TYPE_CHECKING

from trtcache.errors import NotAStoreError, SettingsError, UnsafeStoreError
from trtcache.store.files import TEMPORARY
from trtcache.store.folders import Folders
from trtcache.store.marker import declares_shared, read_marker, write_marker
from trtcache.store.root import TAG, make_root
from trtcache.store.safety import check_safety, check_way

if TYPE_CHECKING:
    from pathlib import Path

_FOLDERS = ("entries", "pins", "locks", "quarantine", "events")
_MODE = 0o2770
_LAST_ID = (1 << 32) - 2  # the next ID means "unchanged" to chown


def group_id(group: str) -> int:
    """Return the ID of a group, given its name or number.

    Raises:
        SettingsError: the group does not exist, or the number is out of range.
    """
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
        way, root = root, root.resolve()
        check_way(way)
        marker, found = read_marker(root), root.stat()
        _check_content(root, marker[0] if marker else None)
        if found.st_uid not in (os.geteuid(), 0):
            raise UnsafeStoreError(
                str(root), f"it belongs to user {found.st_uid}, who is the only one who can share it"
            )
        _give(root, gid)
    except OSError as error:
        raise NotAStoreError(str(root), f"it cannot become a shared store ({error.strerror})") from error
    check_safety(root, way)


def _check_content(root: Path, marker: bytes | None) -> None:
    if marker is not None and not declares_shared(marker):
        raise NotAStoreError(str(root), "it is already a private store; use a new directory for the shared one")
    if marker is None:
        for path in root.iterdir():
            if path.name != TAG and not path.name.startswith(TEMPORARY):
                raise NotAStoreError(str(root), f"it contains {path.name!r}; use a new directory")


def _give(root: Path, gid: int) -> None:
    """Change the directory's group, and grant it write permission: the marker is there before."""
    try:
        os.chown(root, -1, gid)
    except PermissionError as error:
        why = f"you are not in group {gid}, so you cannot give it a directory; ask a member, or root"
        raise NotAStoreError(str(root), why) from error
    root.chmod(0o2700)
    write_marker(root, shared=True)
    root.chmod(_MODE)
    for name in _FOLDERS:
        with Folders(root, shared=True).inside(name, make=True):
            pass
