"""The directory of a zip archive, read strictly: plain members that lie within the file, under plain names."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtcache.errors import (
    DamagedProgramError,
    NotAProgramError,
    ProgramNamesError,
    ProgramSizesError,
    TruncatedProgramError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_MEMBERS = 1 << 16
MAX_DIRECTORY_BYTES = 16 << 20

_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_COMMENT_BYTES = 1 << 16
_BEGINS = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of a member are, and their checksum."""

    start: int
    size_bytes: int
    crc: int


def directory(data: memoryview, path: str) -> dict[str, Place]:
    """Return the members of an archive by name, without the folder that they are all in.

    Raises:
        NotAProgramError: it is no zip archive, or not of one folder.
        TruncatedProgramError: it is cut off.
        ProgramSizesError: sizes in it are not those of the file.
        ProgramNamesError: a name would be a path, or is there twice.
        DamagedProgramError: it is not as it was written.
    """
    if bytes(data[:4]) != _BEGINS:
        raise NotAProgramError(path, "it is no program that trtcache.export wrote: not even a zip archive")
    start, size, count = _end(data, path)
    if count > MAX_MEMBERS or size > MAX_DIRECTORY_BYTES or count * _ENTRY.size > size:
        raise ProgramSizesError(path, f"a directory of {count} members in {size} bytes")
    if start + size > len(data):
        raise ProgramSizesError(path, "its directory does not lie within the file")
    found: dict[str, Place] = {}
    roots = set()
    for name, place in _entries(data, start, size, count, path):
        root, _, inside = name.partition("/")
        if inside in found:
            raise ProgramNamesError(path, f"two of its members are called {inside!r}")
        roots.add(root)
        found[inside] = place
    if len(roots) != 1 or "" in found:
        raise NotAProgramError(path, "it is a zip archive, but none that trtcache.export wrote")
    return found


def _end(data: memoryview, path: str) -> tuple[int, int, int]:
    """Return where the directory is, how long, and how many members it has."""
    tail = bytes(data[-(_END.size + _COMMENT_BYTES) :])
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise TruncatedProgramError(path, "it is cut off: the directory at its end is missing")
    _, disk, first, here, count, size, start, comment = _END.unpack_from(tail, at)
    if disk or first or here != count or at + _END.size + comment != len(tail):
        raise DamagedProgramError(path, "the end of its directory is not as it was written")
    if _FULL16 in {count} or _FULL32 in {size, start}:
        return _end64(data, len(data) - len(tail) + at, path)
    return start, size, count


def _end64(data: memoryview, at: int, path: str) -> tuple[int, int, int]:
    if at < _LOCATOR.size:
        raise TruncatedProgramError(path, "it is cut off: the directory at its end is missing")
    mark, _, end, _ = _LOCATOR.unpack_from(data, at - _LOCATOR.size)
    if mark != b"PK\x06\x07" or end + _END64.size > at:
        raise ProgramSizesError(path, "the end of its directory is not where it says")
    mark, _, _, _, _, _, here, count, size, start = _END64.unpack_from(data, end)
    if mark != b"PK\x06\x06" or here != count:
        raise DamagedProgramError(path, "the end of its directory is not as it was written")
    return start, size, count


def _entries(data: memoryview, start: int, size: int, count: int, path: str) -> Iterator[tuple[str, Place]]:
    at, end = start, start + size
    for _ in range(count):
        if at + _ENTRY.size > end:
            raise ProgramSizesError(path, "its directory is shorter than it says")
        fields = _ENTRY.unpack_from(data, at)
        mark, flags, method, crc, packed, plain = fields[0], fields[3], fields[4], *fields[7:10]
        names, extra, comment, offset = *fields[10:13], fields[16]
        after = at + _ENTRY.size + names + extra + comment
        if mark != b"PK\x01\x02" or after > end:
            raise DamagedProgramError(path, "its directory is not as it was written")
        name = _checked(bytes(data[at + _ENTRY.size : at + _ENTRY.size + names]), path)
        more = bytes(data[at + _ENTRY.size + names : at + _ENTRY.size + names + extra])
        plain, packed, offset = _wide(more, (plain, packed, offset), path)
        if method or flags & 1 or packed != plain:
            raise DamagedProgramError(path, f"its member {name} is compressed or encrypted, which none is")
        yield name, _place(data, offset, plain, crc, path)
        at = after


def _wide(extra: bytes, sizes: tuple[int, int, int], path: str) -> list[int]:
    """Return sizes, those of more than 32 bits from where they are written then."""
    found = list(sizes)
    wanted = [place for place, size in enumerate(sizes) if size == _FULL32]
    while wanted and len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        body, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind == 1 and len(body) >= 8 * len(wanted):
            for place, (size,) in zip(wanted, struct.iter_unpack("<Q", body[: 8 * len(wanted)]), strict=True):
                found[place] = size
            wanted = []
    if wanted:
        raise ProgramSizesError(path, "a member has no size")
    return found


def _place(data: memoryview, offset: int, size: int, crc: int, path: str) -> Place:
    if offset + _LOCAL.size > len(data):
        raise ProgramSizesError(path, "a member does not lie within the file")
    fields = _LOCAL.unpack_from(data, offset)
    start = offset + _LOCAL.size + fields[9] + fields[10]
    if fields[0] != _BEGINS:
        raise DamagedProgramError(path, "a member does not begin as it was written")
    if start + size > len(data):
        raise ProgramSizesError(path, "a member does not lie within the file")
    return Place(start, size, crc)


def _checked(raw: bytes, path: str) -> str:
    name = raw.decode("ascii", "replace")
    if not _NAME.fullmatch(name) or any(set(part) == {"."} for part in name.split("/")) or len(name) > 512:
        raise ProgramNamesError(path, f"a member is called {name!r:.80}, which nothing in it is")
    return name
