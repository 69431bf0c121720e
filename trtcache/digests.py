"""Digests, cache keys, and their canonical encoding.

The encoding is injective: two documents have the same bytes only if they are equal. Every part carries its type and its
length, so parts cannot run into each other (``("ab", "c")`` is not ``("a", "bc")``). ``docs/format.md`` has the
grammar.
"""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from blake3 import blake3

from trtcache.errors import CanonicalizationError

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"
"""Type of a key document. Floats are tagged hexadecimal text, the same for any reader."""

KEY_FORMAT = 1
"""Version of the canonical encoding. Changing it changes every key."""

_HASH_PREFIX = "b3:"
_CHUNK_BYTES = 1 << 16
_MOST_BITS = 14_000  # Python writes integers of at most 4,300 digits in decimal
_THREADED_FROM_BYTES = 8 << 20
_THREADS = 8  # in a separate pool: a forked child would wait forever for blake3.AUTO's process-wide pool


@dataclass(frozen=True, slots=True)
class Digest:
    """BLAKE3 digest of uncompressed bytes, with their size. Written ``b3:<64 hexadecimal digits>``."""

    hex: str
    size_bytes: int

    @classmethod
    def of(cls, data: bytes | memoryview) -> Digest:
        """Hash ``data``; large data is hashed on several cores."""
        return cls(hash_bytes(data).hex(), len(data))

    @classmethod
    def of_file(cls, path: str | os.PathLike[str]) -> Digest:
        """Hash a file's content.

        Raises:
            OSError: the file cannot be read.
        """
        with Path(path).open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            hasher = blake3(max_threads=_threads(size_bytes))
            hasher.update_mmap(path)
            return cls(hasher.hexdigest(), size_bytes)

    def __str__(self) -> str:
        return _HASH_PREFIX + self.hex


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Digest of a complete description of a build, and that description.

    ``digest`` is 64 hexadecimal digits, the name of the entry. ``document`` is the hashed description; it is stored in
    the artifact and compared on a hit, so that digest collisions are detected.
    """

    digest: str
    document: dict[str, Json]

    @classmethod
    def of(cls, kind: str, parts: Mapping[str, object]) -> CacheKey:
        """Build the key for a ``kind`` of artifact from named ``parts``.

        Raises:
            CanonicalizationError: a part has no stable encoding; the message names it.
        """
        document: dict[str, Json] = {
            "format": KEY_FORMAT,
            "kind": kind,
            "parts": {_name(name): canonical(value, f"parts[{name!r}]") for name, value in parts.items()},
        }
        return cls.of_document(document)

    @classmethod
    def of_document(cls, document: dict[str, Json]) -> CacheKey:
        """Build the key of a document."""
        return cls(hash_bytes(encode(document)).hex(), document)

    @property
    def kind(self) -> str:
        """The kind of artifact."""
        return str(self.document["kind"])

    @property
    def parts(self) -> Any:
        """The parts of the description by name, as JSON values."""
        return self.document["parts"]

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return self.digest


def file_bytes(path: str) -> bytes:
    """Read a regular file; for a hundred small files, file objects would double the time.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while part := os.read(descriptor, max(_CHUNK_BYTES, len(parts[-1]) if parts else 0)):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def json_bytes(document: object) -> bytes:
    """Encode a document as JSON; equal documents have equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def hash_bytes(*parts: bytes | memoryview, in_this_thread: bool = False) -> bytes:
    """Return the 32-byte BLAKE3 digest of the parts, one after the other, without joining them.

    Long parts are hashed by threads of their own, unless ``in_this_thread``.
    """
    if len(parts) == 1 and len(parts[0]) < _THREADED_FROM_BYTES:
        return blake3(parts[0]).digest()
    hasher = blake3(max_threads=1 if in_this_thread else _threads(max(map(len, parts), default=0)))
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def _threads(size_bytes: int) -> int:
    return _THREADS if size_bytes >= _THREADED_FROM_BYTES else 1


def digest(path: str | os.PathLike[str]) -> Digest:
    """Hash a file, or the files of a directory with their relative paths.

    A directory's digest covers the relative path and content of every regular file below it, but not times, modes and
    the directory's own name.

    Raises:
        OSError: something below ``path`` cannot be read.
        CanonicalizationError: the directory contains something other than files and directories, or a name that is not
            valid Unicode.
    """
    root = Path(path)
    if not root.is_dir():
        return Digest.of_file(root)

    def refuse(error: OSError) -> None:
        raise error  # os.walk passes over a directory that it cannot list, unless this raises

    files: dict[str, Json] = {}
    size_bytes = 0
    for folder, directories, names in os.walk(root, onerror=refuse):
        links = [name for name in directories if Path(folder, name).is_symlink()]
        for below in (Path(folder, name) for name in (*names, *links)):
            if not below.is_file():
                raise CanonicalizationError(str(below), "not a file or directory, so it has no digest")
            content = Digest.of_file(below)
            files[_text(below.relative_to(root).as_posix(), str(root))] = [str(content), content.size_bytes]
            size_bytes += content.size_bytes
    return Digest(hash_bytes(encode(files)).hex(), size_bytes)


def canonical(value: object, where: str = "value") -> Json:
    """Convert ``value`` to a tree of JSON types, the same for equal values in every process.

    Floats become ``{"$float": hex}``, bytes ``{"$bytes": hex}``, digests ``{"$digest": text, "$size": bytes}``, sets
    ``{"$set": [...]}`` sorted by their encodings, enums their class and name (a combination of flags without a name its
    value, too). Pass ``member.value`` where that is what the result depends on. Tuples and lists are equivalent.

    Raises:
        CanonicalizationError: the value, or a nested one, has no stable encoding.
    """
    if isinstance(value, enum.Enum):
        written: dict[str, Json] = {"$enum": f"{type(value).__qualname__}.{value.name}"}
        return written if value.name is not None else {**written, "$value": canonical(value.value, where)}
    if value is None or isinstance(value, (bool, str)):
        return _text(value, where) if isinstance(value, str) else value
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise CanonicalizationError(where, f"an integer of {value.bit_length():,} bits; use bytes")
        return int.__index__(value)
    if isinstance(value, float):
        return {"$float": float.hex(value)}
    if isinstance(value, memoryview) and (value.format, value.ndim) != ("B", 1):
        found = f"a memoryview of elements {value.format!r} in {value.ndim} dimensions"
        raise CanonicalizationError(where, f"{found}; use bytes(view), and give its dtype and shape as other parts")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, Digest):
        return {"$digest": str(value), "$size": value.size_bytes}
    try:
        return _canonical_container(value, where)
    except RecursionError:
        raise CanonicalizationError(f"{where:.60}...", "it is nested too deeply, or contains itself") from None


def is_negative_nan(value: float) -> bool:
    """Return whether a number is a NaN with its sign set: ``hex``, ``repr`` and JSON have one form for all NaNs."""
    return math.isnan(value) and math.copysign(1.0, value) < 0


def _canonical_container(value: object, where: str) -> Json:
    if isinstance(value, Mapping):
        items = {_name(name, where): canonical(item, f"{where}[{name!r}]") for name, item in value.items()}
        if len(items) != len(value):
            raise CanonicalizationError(where, "two of its names are the same text")
        return items
    if isinstance(value, Sequence):
        return [canonical(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Set):
        return {"$set": sorted((canonical(item, where) for item in value), key=encode)}
    hint = "use text, numbers, bytes, digests, or lists, sets and mappings of them"
    if isinstance(value, os.PathLike):
        hint = "use trtcache.digest(path) for a file's content, or str(path) for its name"
    raise CanonicalizationError(where, f"{type(value).__name__} has no stable value to hash; {hint}")


def _name(name: Any, where: str = "parts") -> str:
    if not isinstance(name, str):
        raise CanonicalizationError(where, f"the name {name!r} is not text")
    if name.startswith("$"):
        raise CanonicalizationError(where, f"the name {name!r} starts with '$', which is reserved for encoded values")
    return _text(name, where)


def _text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CanonicalizationError(where, f"not valid Unicode: {error.reason}") from error
    return str.__str__(text)  # a derived class can return another text for str(text)


def encode(value: Json) -> bytes:
    """Encode a document as canonical bytes: type, length and content of each part, mappings in sorted order."""
    out: list[bytes] = []
    pending: list[Json] = [value]  # a stack, the next value last
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            content = value.encode()
            out.append(b"s%d:%b" % (len(content), content))
        elif isinstance(value, dict):
            out.append(b"d%d:" % len(value))
            for name in sorted(value, key=str.encode, reverse=True):
                pending += (value[name], name)
        elif isinstance(value, list):
            out.append(b"l%d:" % len(value))
            pending += reversed(value)
        elif value is None:
            out.append(b"n")
        elif isinstance(value, bool):
            out.append(b"t" if value else b"f")
        elif isinstance(value, int):
            digits = str(value).encode()
            out.append(b"i%d:%b" % (len(digits), digits))
        else:
            raise TypeError(f"{type(value).__name__} is not a type of a key document")
    return b"".join(out)
