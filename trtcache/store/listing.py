"""Directory listings of a store's entries, without opening any file."""

from __future__ import annotations

import logging
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trtcache.errors import AmbiguousKeyError, UnknownKeyError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOG = logging.getLogger("trtcache.store")

SUFFIX: Final = ".trtc"

_ENTRY_NAME = re.compile(r"([0-9a-f]{64})\.trtc")
_HEX = re.compile(r"[0-9a-f]{1,64}")
_FOLDER_NAME = re.compile(r"[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class EntryStat:
    """Directory metadata of an entry. ``used_ns`` is the file's modification time."""

    digest: str
    file_bytes: int
    used_ns: int
    inode: int


def folders(root: Path, of: str = "entries") -> list[str]:
    """Return the names of the directories for entries, or for ``locks``; links are skipped."""
    try:
        with os.scandir(root / of) as items:
            return [
                item.name for item in items if _FOLDER_NAME.fullmatch(item.name) and item.is_dir(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def stored_in(root: Path, folder: str) -> Iterator[EntryStat]:
    """Yield the metadata of each entry in one of those directories, unordered.

    An unreadable directory, which another member of a shared store can create, only causes a warning.
    """
    try:
        items = list(os.scandir(root / "entries" / folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError as error:
        _LOG.warning("%s", error)
        return
    for item in items:
        match = _ENTRY_NAME.fullmatch(item.name)
        if match is None:
            continue
        with suppress(FileNotFoundError):
            status = item.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                yield EntryStat(match[1], status.st_size, status.st_mtime_ns, status.st_ino)


def scan(root: Path) -> Iterator[EntryStat]:
    """Yield the metadata of each entry, unordered."""
    for folder in folders(root):
        yield from stored_in(root, folder)


def resolve(root: Path, prefix: str) -> str:
    """Return the full digest of the one entry whose key starts with ``prefix`` (optionally ``b3:`` and the prefix).

    Raises:
        UnknownKeyError: no key starts with it.
        AmbiguousKeyError: several keys do.
    """
    wanted = prefix.lower().removeprefix("b3:")
    if not _HEX.fullmatch(wanted):
        raise UnknownKeyError(prefix)
    near = scan(root) if len(wanted) < 2 else stored_in(root, wanted[:2])
    matches = sorted(stat.digest for stat in near if stat.digest.startswith(wanted))
    if not matches:
        raise UnknownKeyError(prefix)
    if len(matches) > 1:
        raise AmbiguousKeyError(wanted, tuple(matches))
    return matches[0]
