"""Memory-mapped zip archives of weights: member contents and checksum verification.

torch maps such files without comparing checksums.
"""

from __future__ import annotations

import mmap
import zipfile
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

ALIGNED_BYTES = 64
"""Alignment of member contents in torch's archives, so that they can be used in place."""

_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 1
_HEADER_BYTES, _ZIP64_BYTES, _EXTRA_BYTES = 30, 20, 4

KNOWN_VERSION: Final = "0"
"""The version of archives of ``torch.export.save`` that is read here."""

SAVE_AGAIN: Final = "save it again, or copy it again from an intact copy"
"""What to do with a damaged archive."""

HAS_ENGINES: Final = "it contains engines: trtcache.load runs it; give the program that it was exported from"
"""Why a file that ``trtcache.export`` wrote is not read as one of weights."""


def aligned_member(name: str, size_bytes: int, target: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Describe a new member with padding that aligns its content as torch does."""
    info = zipfile.ZipInfo(name)
    info.file_size = size_bytes
    position = target.fp.tell() if target.fp else 0
    start = position + _HEADER_BYTES + len(name.encode()) + _EXTRA_BYTES
    start += _ZIP64_BYTES if size_bytes * 1.05 > zipfile.ZIP64_LIMIT else 0
    padding = -start % ALIGNED_BYTES
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    return info


def damage(path: Path) -> str:
    """Return what is damaged in an archive, empty if nothing is; the file is read once.

    Members are named without the folder that all of them are in.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb", buffering=0) as file:
            members = archive.infolist()
            mapped = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        return f"it is damaged or cut off ({error})"
    # torch.serialization.set_crc32_options(False) omits all checksums.
    if any(info.CRC for info in members):
        for info in members:
            if why := member_damage(mapped, info, name=info.filename.partition("/")[2] or info.filename):
                return f"it is damaged ({why})"
    return ""


def member_damage(mapped: memoryview, info: zipfile.ZipInfo, *, name: str) -> str:
    """Return what is damaged in one member of a mapped archive, called ``name``; empty if nothing is."""
    try:
        whole = zlib.crc32(content(mapped, info)) == info.CRC
    except ValueError as error:
        return str(error)
    return "" if whole else f"its member {name} does not have its checksum"


def content(mapped: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """Return a member's content, without a copy if it is not compressed.

    Raises:
        ValueError: it is outside of the archive, or cannot be decompressed.
    """
    data = raw(mapped, info)
    if info.flag_bits & _ENCRYPTED:
        raise ValueError(f"{info.filename} is encrypted")
    if info.compress_type == zipfile.ZIP_DEFLATED:
        try:
            data = memoryview(bytearray(zlib.decompress(data, -zlib.MAX_WBITS, info.file_size)))
        except zlib.error as error:
            raise ValueError(f"{info.filename} cannot be decompressed: {error}") from error
    elif info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{info.filename} has an unknown compression")
    if len(data) != info.file_size:
        raise ValueError(f"{info.filename} is cut off")
    return data


def raw(mapped: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """Return a member's stored bytes, fewer than declared if the archive is cut off."""
    header = bytes(mapped[info.header_offset : info.header_offset + _LOCAL_HEADER_BYTES])
    names = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    start = info.header_offset + _LOCAL_HEADER_BYTES + sum(names)
    return mapped[start : start + info.compress_size]
