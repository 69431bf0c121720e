"""What the directories of a store say about its entries, without opening a file."""

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
    """What a directory listing says about an entry. ``used_ns`` is the file's time of modification."""

    digest: str
    file_bytes: int
    used_ns: int
    inode: int


def folders(root: Path, of: str = "entries") -> list[str]:
    """Return the names of the directories that entries lie in, or their ``locks``; links are none."""
    try:
        with os.scandir(root / of) as found:
            return [one.name for one in found if _FOLDER_NAME.fullmatch(one.name) and one.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def stored_in(root: Path, folder: str) -> Iterator[EntryStat]:
    """Yield what one of those directories says about each entry in it, in no order.

    One that this user may not read, as another can make it in a shared store, costs a warning and no other entry.
    """
    try:
        found = list(os.scandir(root / "entries" / folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError as error:
        _LOG.warning("%s", error)
        return
    for entry in found:
        match = _ENTRY_NAME.fullmatch(entry.name)
        if match is None:
            continue
        with suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                yield EntryStat(match[1], status.st_size, status.st_mtime_ns, status.st_ino)


def scan(root: Path) -> Iterator[EntryStat]:
    """Yield what the directories say about each entry, in no order."""
    for folder in folders(root):
        yield from stored_in(root, folder)


def resolve(root: Path, prefix: str) -> str:
    """Return the full digest of the one entry whose key begins with ``prefix`` (``b3:`` may come first).

    Raises:
        UnknownKeyError: there is none.
        AmbiguousKeyError: there are several.
    """
    wanted = prefix.lower().removeprefix("b3:")
    if not _HEX.fullmatch(wanted):
        raise UnknownKeyError(prefix)
    near = scan(root) if len(wanted) < 2 else stored_in(root, wanted[:2])
    matches = sorted(found.digest for found in near if found.digest.startswith(wanted))
    if not matches:
        raise UnknownKeyError(prefix)
    if len(matches) > 1:
        raise AmbiguousKeyError(wanted, tuple(matches))
    return matches[0]
