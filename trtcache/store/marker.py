"""The marker file that identifies a store and declares whether it is shared."""

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
    """Return the marker's bytes and its file status, or None if there is no marker.

    Raises:
        OSError: it is a link or cannot be read.
    """
    try:
        fd = os.open(root / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(file.fileno())
        return (file.read(_MAX_BYTES) if stat.S_ISREG(status.st_mode) else b""), status


def write_marker(root: Path, *, shared: bool = False) -> None:
    """Write the marker. The marker of a shared store is readable by all and writable by its owner only.

    Raises:
        OSError: it cannot be written.
    """
    if shared:
        publish_bytes(root / MARKER, b'{"format": %d, "shared": true}\n' % STORE_FORMAT, mode=0o644)
    else:
        publish_bytes(root / MARKER, b'{"format": %d}\n' % STORE_FORMAT)


def format_of(raw: bytes) -> int | None:
    """Return the format version in a marker, or None if it is damaged."""
    version = _fields(raw).get("format")
    return version if type(version) is int and version > 0 else None


def declares_shared(raw: bytes) -> bool:
    """Return whether a marker declares its store shared."""
    return _fields(raw).get("shared") is True


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
