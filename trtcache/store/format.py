"""The artifact file format, version 1: parsing and encoding without I/O.

``docs/format.md`` is the grammar. A file is a prelude of 64 bytes, a header, a block of signatures, and members at
multiples of 4096 with zeros between them. Every byte is covered: the prelude's digest covers everything up to the
members, each member has a digest of its stored bytes, and all other bytes must be zero.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, Json, hash_bytes
from trtcache.errors import BuildError, CorruptBlobError, FormatVersionError

MAGIC: Final = b"\x89TRTC\r\n\x1a"
FORMAT: Final = 1
PRELUDE_BYTES: Final = 64
ALIGNMENT: Final = 4096
MAX_HEADER_BYTES: Final = 16 << 20
MAX_SIGNATURES_BYTES: Final = 64 << 10
MAX_MEMBERS: Final = 1024
MAX_VALUES: Final = 1 << 20
"""Maximum number of values in a header: 16 MiB of empty lists would take 450 MB of memory."""

MAX_RATIO: Final = 1024
"""Maximum compression ratio of a member, which bounds the memory that a small file can make a reader allocate."""

DEFAULT_MEMBER: Final = "artifact"

Codec: TypeAlias = Literal["stored", "zstd"]
Content: TypeAlias = "bytes | bytearray | memoryview | Path"
Built: TypeAlias = "Content | Mapping[str, Content]"
"""Result of a build function: the artifact's bytes, the path of its file, or several members by name."""

Sign: TypeAlias = "Callable[[int, bytes], bytes]"
"""Sign a header, given the format version and the header's bytes; returns the signature block."""

Admit: TypeAlias = "Callable[[int, bytes, bytes], None]"
"""Check a header, given the version, the header's bytes and its signatures; raises if they are not trusted."""

_PRELUDE = struct.Struct("<8sIIIIQ")
_MEMBER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
HEX_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST = (1 << 63) - 1
LONGEST_BUILD_S: Final = 1e9

LARGE_BYTES: Final = 64 << 20
"""Size from which a member counts as large."""


@frozen_dataclass
class Member:
    """One named part of an artifact: ``digest`` covers the uncompressed bytes, ``stored_digest`` the stored ones."""

    name: str
    codec: Codec
    offset: int
    size_bytes: int
    digest: str
    stored_bytes: int
    stored_digest: str

    @property
    def end(self) -> int:
        """Offset of the first byte after the member."""
        return self.offset + self.stored_bytes


@frozen_dataclass
class EntryHeader:
    """Header of an artifact file. ``file_bytes`` is the length of the whole file."""

    key: CacheKey
    kind: str
    name: str | None
    created_ns: int
    build_s: float
    provenance: Mapping[str, str]
    members: tuple[Member, ...]
    file_bytes: int

    @property
    def size_bytes(self) -> int:
        """Uncompressed size of all members together."""
        return sum(member.size_bytes for member in self.members)


@frozen_dataclass
class Prelude:
    """The first 64 bytes of a file: the lengths of the following parts and the digest that authenticates them."""

    version: int
    header_bytes: int
    signatures_bytes: int
    file_bytes: int
    digest: bytes

    @property
    def members_from(self) -> int:
        """Minimum offset of the first member, before alignment."""
        return PRELUDE_BYTES + self.header_bytes + self.signatures_bytes


@frozen_dataclass
class Draft:
    """An artifact to be written: the result of a build function and the build's metadata."""

    key: CacheKey
    kind: str
    name: str | None
    created_ns: int
    build_s: float
    provenance: Mapping[str, str]
    contents: Mapping[str, Content]


def contents_of(built: object, kind: str) -> dict[str, Content]:
    """Validate the return value of a build function and return its members.

    Raises:
        BuildError: it has another type, an invalid member name, or the path of a missing file.
    """
    members = built if isinstance(built, Mapping) else {DEFAULT_MEMBER: built}
    if not 0 < len(members) <= MAX_MEMBERS:
        raise BuildError(kind, f"it returned {len(members)} members; an artifact has 1 to {MAX_MEMBERS}")
    contents: dict[str, Content] = {}
    for name, content in members.items():
        if not isinstance(name, str) or not _MEMBER_NAME.fullmatch(name):
            raise BuildError(kind, f"it returned a member named {name!r}; names match {_MEMBER_NAME.pattern}")
        if isinstance(content, memoryview) and type(content.obj) is bytes and content.c_contiguous:
            contents[name] = content.cast("B")
        elif isinstance(content, (bytes, bytearray, memoryview)):
            # Copies what may change, as a read-only view of an array or of a mapped file; bytes stay the same object.
            contents[name] = bytes(content)
        elif not isinstance(content, Path):
            actual = type(content).__name__
            raise BuildError(kind, f"member {name!r} is of type {actual}; return bytes or the pathlib.Path of a file")
        elif not content.is_file():
            lack = "is not a file" if content.exists() else "does not exist"
            raise BuildError(kind, f"member {name!r} is the path {content}, which {lack}")
        else:
            contents[name] = content
    return contents


def align(offset: int) -> int:
    """Round up to the next multiple of 4096."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def is_compression_worthwhile(size_bytes: int, compressed_bytes: int) -> bool:
    """Return whether compression is worthwhile: it saves enough, and the ratio stays within the limit.

    Enough is 5 %, or 25 % for large members: uncompressed, they are mapped. Compressing the weights in a plan of 400 MB
    saved 8 %, and cost a second copy in memory at every hit.
    """
    limit_percent = 75 if size_bytes >= LARGE_BYTES else 95
    return compressed_bytes * 100 <= size_bytes * limit_percent and size_bytes <= compressed_bytes * MAX_RATIO


def encode_header(header: EntryHeader) -> bytes:
    """Encode a header as canonical JSON: sorted names, no whitespace, ASCII."""
    document = {
        "build_s": header.build_s,
        "created_ns": header.created_ns,
        "key": {"digest": f"b3:{header.key.digest}", "document": header.key.document},
        "kind": header.kind,
        "members": [asdict(member) for member in header.members],
        "name": header.name,
        "provenance": dict(header.provenance),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def reserved_bytes(draft: Draft) -> int:
    """Return an upper bound for the header size of ``draft``, for any sizes and digests of its members.

    Members can then be streamed before their sizes are known, and the header written last.
    """
    largest = Member("", "stored", _LARGEST, _LARGEST, "b3:" + "0" * 64, _LARGEST, "b3:" + "0" * 64)
    return len(encode_header(header_of(draft, tuple(replace(largest, name=name) for name in draft.contents), 0)))


def header_of(draft: Draft, members: tuple[Member, ...], file_bytes: int) -> EntryHeader:
    """Return the header of ``draft`` with its written ``members``."""
    metadata = (draft.key, draft.kind, draft.name, draft.created_ns, draft.build_s, draft.provenance)
    return EntryHeader(*metadata, members, file_bytes)


def encode_prelude_and_header(header: EntryHeader, header_bytes: int, sign: Sign | None = None) -> bytes:
    """Encode the prelude, the header, padded with spaces to ``header_bytes``, and its signatures."""
    body = encode_header(header).ljust(header_bytes)
    signatures = sign(FORMAT, body) if sign else b""
    first = _PRELUDE.pack(MAGIC, FORMAT, len(body), len(signatures), 0, header.file_bytes)
    return first + hash_bytes(first, body, signatures) + body + signatures


def parse_prelude(raw: bytes, file_bytes: int, path: str) -> Prelude:
    """Parse the prelude of a file that is ``file_bytes`` long.

    Raises:
        CorruptBlobError: it is not a prelude, or its lengths do not fit the file or the limits of the format.
    """
    if len(raw) < PRELUDE_BYTES or raw[:8] != MAGIC:
        raise CorruptBlobError(path, "magic", "it does not start with the signature of an artifact file")
    _, version, header_bytes, signatures_bytes, reserved, declared_bytes = _PRELUDE.unpack_from(raw)
    if declared_bytes != file_bytes:
        raise CorruptBlobError(path, "size", f"it is {file_bytes} bytes long but declares {declared_bytes}")
    prelude = Prelude(version, header_bytes, signatures_bytes, file_bytes, raw[_PRELUDE.size : PRELUDE_BYTES])
    if header_bytes > MAX_HEADER_BYTES or signatures_bytes > MAX_SIGNATURES_BYTES or reserved != 0:
        raise CorruptBlobError(path, "header", "its lengths are out of bounds")
    if prelude.members_from > file_bytes:
        raise CorruptBlobError(path, "size", f"its header ends after its {file_bytes} bytes")
    return prelude


def parse_header(raw: bytes, prelude: Prelude, path: str, admit: Admit | None = None) -> EntryHeader:
    """Authenticate and parse the header of a file, given all bytes before the members.

    ``admit`` receives the version, the header's bytes and the signatures before the header is parsed.

    Raises:
        CorruptBlobError: the digest does not match, or the header breaks the grammar.
        FormatVersionError: the file is intact, and of another format version.
        UntrustedEntryError: ``admit`` rejects it.
    """
    whole = memoryview(raw)
    if hash_bytes(whole[: _PRELUDE.size], whole[PRELUDE_BYTES:]) != prelude.digest:
        raise CorruptBlobError(path, "header", "its digest does not match")
    if prelude.version != FORMAT:
        raise FormatVersionError(path, prelude.version, FORMAT)
    body = raw[PRELUDE_BYTES : PRELUDE_BYTES + prelude.header_bytes]
    if admit is not None:
        admit(prelude.version, body, raw[prelude.members_from - prelude.signatures_bytes : prelude.members_from])
    try:
        header = _decode_header(body, prelude.file_bytes)
        _check_layout(header, prelude.members_from)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        # Cut the error off: it may quote the header, and anybody can write one of 16 MiB without a signature.
        raise CorruptBlobError(path, "header", f"it breaks the grammar: {error!s:.300}") from error
    return header


def check_document(header: EntryHeader, path: str) -> None:
    """Verify that a header's key document has the declared digest.

    Raises:
        CorruptBlobError: it has another digest, or cannot be encoded.
    """
    try:
        actual = CacheKey.of_document(header.key.document).digest
    except (TypeError, ValueError, RecursionError) as error:  # e.g. a float in it, or a thousand levels of nesting
        raise CorruptBlobError(path, "key", f"its key document has no digest: {error}") from error
    if actual != header.key.digest:
        raise CorruptBlobError(path, "key", "its key document does not have this digest")


def _decode_header(raw: bytes, file_bytes: int) -> EntryHeader:
    if sum(map(raw.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    document = json.loads(raw.decode())
    if b"\\ud" in raw.lower():
        json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate is not valid text
    key = document["key"]
    digest = _check_type(key["digest"], str).removeprefix("b3:")
    return EntryHeader(
        key=CacheKey(digest, _check_type(key["document"], dict)),
        kind=_check_type(document["kind"], str),
        name=None if document["name"] is None else _check_type(document["name"], str),
        created_ns=_check_range(_check_type(document["created_ns"], int), _LARGEST),
        build_s=float(_check_range(_check_type(document["build_s"], (int, float)), LONGEST_BUILD_S)),
        provenance={str(name): _check_type(text, str) for name, text in document["provenance"].items()},
        members=tuple([_decode_member(member) for member in _check_type(document["members"], list)]),
        file_bytes=file_bytes,
    )


_MEMBER_FIELDS = frozenset(field.name for field in fields(Member))


def _decode_member(document: dict[str, Json]) -> Member:
    if document.keys() != _MEMBER_FIELDS:
        raise ValueError(f"a member with the fields {sorted(document)}")
    member = Member(**document)  # type: ignore[arg-type]  # each value is checked below
    for size in (member.offset, member.size_bytes, member.stored_bytes):
        if type(size) is not int or not 0 <= size <= _LARGEST:
            raise ValueError(f"the size {size!r}")
    for digest in (member.digest, member.stored_digest):
        if not HEX_DIGEST.fullmatch(digest.removeprefix("b3:")):
            raise ValueError(f"the digest {digest!r}")
    if not _MEMBER_NAME.fullmatch(member.name):
        raise ValueError(f"the name {member.name!r}")
    return member


def _check_type(value: Any, expected: type | tuple[type, ...]) -> Any:
    if isinstance(value, bool) or not isinstance(value, expected):
        raise TypeError(f"{value!r:.40} instead of {expected}")
    return value


def _check_range(value: Any, largest: float) -> Any:
    if not 0 <= value <= largest:  # also rejects NaN
        raise ValueError(f"{value!r:.40} instead of 0 to {largest}")
    return value


def _check_layout(header: EntryHeader, members_from: int) -> None:
    names = [member.name for member in header.members]
    if not 0 < len(names) <= MAX_MEMBERS or len(set(names)) != len(names):
        raise ValueError(f"{len(names)} members with {len(set(names))} names")
    end = members_from
    for member in header.members:
        if member.codec == "stored":
            if (member.stored_bytes, member.stored_digest) != (member.size_bytes, member.digest):
                raise ValueError(f"member {member.name!r} is stored uncompressed, but sizes or digests differ")
        elif member.codec != "zstd" or member.size_bytes > member.stored_bytes * MAX_RATIO:
            raise ValueError(f"member {member.name!r}: codec {member.codec!r}, {member.size_bytes} bytes")
        if member.offset != align(end):
            raise ValueError(f"member {member.name!r} at {member.offset}, not at {align(end)}")
        end = member.end
    if header.size_bytes > _LARGEST:
        raise ValueError(f"{header.size_bytes} bytes of content")
    if end != header.file_bytes:
        raise ValueError(f"members end at {end} in a file of {header.file_bytes} bytes")


def gaps(header: EntryHeader, prelude: Prelude) -> list[tuple[int, int]]:
    """Return the (start, end) of a file's padding, which must be zero: before the first member, and between members."""
    starts = [prelude.members_from, *(member.end for member in header.members[:-1])]
    return [(start, member.offset) for start, member in zip(starts, header.members, strict=True)]
