"""Whether a zip archive of weights is as it was written: torch maps such files, and then compares no checksum."""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ALIGNED_BYTES = 64
"""At multiples of which torch begins the bytes of a member, so that they can be used where they lie."""

_CHUNK_BYTES = 1 << 20
_HEADER_BYTES, _ZIP64_BYTES, _EXTRA_BYTES = 30, 20, 4


def placed(name: str, size_bytes: int, target: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return a new member's description with a padding that makes its bytes begin where torch begins them."""
    info = zipfile.ZipInfo(name)
    info.file_size = size_bytes
    position = target.fp.tell() if target.fp else 0
    start = position + _HEADER_BYTES + len(name.encode()) + _EXTRA_BYTES
    start += _ZIP64_BYTES if size_bytes * 1.05 > zipfile.ZIP64_LIMIT else 0
    padding = -start % ALIGNED_BYTES
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    return info


def damage(path: Path) -> str:
    """Return what is damaged in an archive, empty if nothing is; it is read once, a chunk at a time.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            # torch.serialization.set_crc32_options(False) leaves all checksums out.
            if any(info.CRC for info in members):
                for info in members:
                    if why := _member_damage(archive, info):
                        return why
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        return f"it is damaged or cut off ({error})"
    return ""


def _member_damage(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    """Return what is wrong with one member; reading it to its end compares its checksum."""
    try:
        with archive.open(info) as content:
            while content.read(_CHUNK_BYTES):
                pass
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        why = str(error).partition(" for file ")[0]
        return f"it is damaged (its member {info.filename}: {why})"
    except RuntimeError as error:  # it is encrypted
        return f"its member {info.filename} cannot be read ({error})"
    return ""
