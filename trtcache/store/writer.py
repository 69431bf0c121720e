"""Write the file of an entry: members are streamed first, the header is written last."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BuildError, HeaderSizeError
from trtcache.store.compression import CompressionError, compressed_size, compressor
from trtcache.store.files import write_at
from trtcache.store.format import (
    MAX_HEADER_BYTES,
    PRELUDE_BYTES,
    Content,
    Draft,
    EntryHeader,
    Member,
    align,
    encode_prelude_and_header,
    header_of,
    is_compression_worthwhile,
    reserved_bytes,
)
from trtcache.store.signatures import LINE_BYTES, sign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.config.signing_keys import SecretKey

CHUNK_BYTES = 1 << 20
_SAMPLES, _SAMPLE_BYTES = 16, 64 << 10


def write_entry_file(fd: int, draft: Draft, key: SecretKey | None = None) -> EntryHeader:
    """Write ``draft`` to the empty file ``fd`` and return its header. Uses a few MiB of memory for members of any size.

    ``key`` signs the header. Does not flush: the caller calls ``fsync``.

    Raises:
        OSError: the file cannot be written, or there is not enough memory.
        BuildError: a member's file cannot be read, or changed while it was read.
        HeaderSizeError: the header would be larger than the format allows.
    """
    header_bytes = reserved_bytes(draft)
    if header_bytes > MAX_HEADER_BYTES:
        raise HeaderSizeError(header_bytes, MAX_HEADER_BYTES)
    end = PRELUDE_BYTES + header_bytes + (LINE_BYTES if key else 0)
    members = []
    for name, content in draft.contents.items():
        try:
            with _open_content(content, draft.kind) as source:
                member = _write_member(fd, name, source, align(end))
        except (CompressionError, MemoryError) as error:  # zstd only fails if there is not enough memory
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
        members.append(member)
        end = member.end
    os.ftruncate(fd, end)  # an empty last member has an offset and writes nothing
    header = header_of(draft, tuple(members), end)
    write_at(fd, encode_prelude_and_header(header, header_bytes, partial(sign, key) if key else None), 0)
    return header


@frozen_dataclass
class _MemberContent:
    """A member's content, readable in chunks and repeatedly."""

    kind: str
    size_bytes: int
    data: memoryview | None = None
    fd: int = -1

    def read(self, offset: int, size: int) -> bytes | memoryview:
        if self.data is not None:
            return self.data[offset : offset + size]
        try:
            chunk = os.pread(self.fd, size, offset)
        except OSError as error:
            raise BuildError(self.kind, f"its file cannot be read: {error}") from error
        if len(chunk) != min(size, self.size_bytes - offset):
            raise BuildError(self.kind, "its file changed while it was stored")
        return chunk

    def chunks(self) -> Iterator[bytes | memoryview]:
        for offset in range(0, self.size_bytes, CHUNK_BYTES):
            yield self.read(offset, CHUNK_BYTES)

    def sample(self) -> bytes:
        """Return all of a small content, or 16 pieces of 64 KiB spread over a large one."""
        if self.size_bytes <= _SAMPLES * _SAMPLE_BYTES:
            return bytes(self.read(0, self.size_bytes))
        step = self.size_bytes // _SAMPLES
        return b"".join(bytes(self.read(index * step, _SAMPLE_BYTES)) for index in range(_SAMPLES))


@contextmanager
def _open_content(content: Content, kind: str) -> Iterator[_MemberContent]:
    if not isinstance(content, Path):
        view = memoryview(content)
        yield _MemberContent(kind, len(view), view)
        return
    try:
        fd = os.open(content, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BuildError(kind, f"its file {content} cannot be read: {error.strerror}") from error
    try:
        yield _MemberContent(kind, os.fstat(fd).st_size, fd=fd)
    finally:
        os.close(fd)


@dataclass(slots=True)
class _Output:
    """Append to a file from an offset on, and hash the appended bytes."""

    fd: int
    offset: int
    size_bytes: int = 0
    hasher: blake3 = field(default_factory=blake3)

    def write(self, data: bytes | memoryview) -> None:
        write_at(self.fd, data, self.offset + self.size_bytes)
        self.hasher.update(data)
        self.size_bytes += len(data)

    @property
    def digest(self) -> str:
        return f"b3:{self.hasher.hexdigest()}"


def _write_member(fd: int, name: str, source: _MemberContent, offset: int) -> Member:
    if pays_to_compress(source.sample(), source.size_bytes):
        out, hasher, frame = _Output(fd, offset), blake3(), compressor(source.size_bytes)
        for chunk in source.chunks():
            hasher.update(chunk)
            out.write(frame.compress(chunk))
        out.write(frame.flush())
        if is_compression_worthwhile(source.size_bytes, out.size_bytes):
            digest = f"b3:{hasher.hexdigest()}"
            return Member(name, "zstd", offset, source.size_bytes, digest, out.size_bytes, out.digest)
        os.ftruncate(fd, offset)  # discard the compressed attempt
    out = _Output(fd, offset)
    for chunk in source.chunks():
        out.write(chunk)
    return Member(name, "stored", offset, out.size_bytes, out.digest, out.size_bytes, out.digest)


def pays_to_compress(sample: bytes, size_bytes: int) -> bool:
    """Return whether a member of this size with this ``sample`` should be compressed."""
    return bool(sample) and is_compression_worthwhile(size_bytes, compressed_size(sample) * size_bytes // len(sample))
