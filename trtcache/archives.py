"""Whether a zip archive of weights is as it was written: torch maps such files, and then compares no checksum."""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK_BYTES = 1 << 20


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
