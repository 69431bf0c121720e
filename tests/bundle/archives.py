"""Changes programs as somebody would who can write to their files."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

from trtcache.bundle.archive import HEADER
from trtcache.digests import hash_bytes

if TYPE_CHECKING:
    from pathlib import Path


def rewritten(path: Path, changes: dict[str, bytes]) -> None:
    """Exchange members of an archive, checksums included."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, changes.get(name.partition("/")[2], content))


def header_of(path: Path) -> dict[str, Any]:
    """Return what the header of a file says."""
    with zipfile.ZipFile(path) as archive:
        found: dict[str, Any] = json.loads(archive.read(f"program/{HEADER}"))
    return found


def resealed(path: Path, name: str, content: bytes) -> None:
    """Exchange a member, and the digest that the header has of it: only a signature would tell."""
    header = header_of(path)
    header["members"][name] = [len(content), f"b3:{hash_bytes(content).hex()}"]
    rewritten(path, {name: content, HEADER: json.dumps(header).encode()})
