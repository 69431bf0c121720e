"""The file that makes a directory a store, and says whether it is shared."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, Final

from trtcache.store.files import publish_bytes

if TYPE_CHECKING:
    from pathlib import Path

MARKER: Final = "trtcache-store.json"
STORE_FORMAT: Final = 1

_MAX_BYTES = 4096


def read_marker(root: Path) -> tuple[bytes, os.stat_result] | None:
    """Return the marker's bytes and what its file is, or None if there is none.

    Raises:
        OSError: it is a link or cannot be read.
    """
    try:
        fd = os.open(root / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(file.fileno())
        return (file.read(_MAX_BYTES) if stat.S_ISREG(found.st_mode) else b""), found


def write_marker(root: Path, *, shared: bool = False) -> None:
    """Write the marker. Of a shared store all may read it, and only who wrote it can write it.

    Raises:
        OSError: it cannot be written.
    """
    if shared:
        publish_bytes(root / MARKER, b'{"format": %d, "shared": true}\n' % STORE_FORMAT, mode=0o644)
    else:
        publish_bytes(root / MARKER, b'{"format": %d}\n' % STORE_FORMAT)


def format_of(raw: bytes) -> int | None:
    """Return the format that a marker names, or None if it is damaged."""
    found = _fields(raw).get("format")
    return found if type(found) is int and found > 0 else None


def declares_shared(raw: bytes) -> bool:
    """Return whether a marker declares its store shared."""
    return _fields(raw).get("shared") is True


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
