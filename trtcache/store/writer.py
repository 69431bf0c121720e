"""Write the file of an entry: from members that are streamed, or from chunks that arrive as from a network."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BuildError, CorruptBlobError, HeaderSizeError
from trtcache.store.compression import CompressionError, compressed_size, compressor
from trtcache.store.files import TemporaryFile, write_at
from trtcache.store.format import (
    MAX_HEADER_BYTES,
    PRELUDE_BYTES,
    Admit,
    Content,
    Draft,
    EntryHeader,
    Member,
    align,
    check_document,
    encode_prelude_and_header,
    header_of,
    is_compression_worthwhile,
    parse_header,
    parse_prelude,
    reserved_bytes,
)
from trtcache.store.reader import ArtifactFile, Buffer
from trtcache.store.signatures import LINE_BYTES, sign

if TYPE_CHECKING:
    from trtcache.config.signing_keys import SecretKey
    from trtcache.digests import CacheKey


@frozen_dataclass
class IncomingFile:
    """An artifact file whose header was received and authenticated.

    Its members are verified when it is stored or loaded.

    Attributes:
        header: its header.
        received: all bytes that were received so far.
        chunks: the rest of the file.
        where: its address, for messages.
    """

    header: EntryHeader
    received: bytearray
    chunks: Iterator[bytes]
    where: str

    @classmethod
    def open(
        cls, chunks: Iterator[bytes], size_bytes: int, key: CacheKey | str, *, where: str, admit: Admit | None
    ) -> IncomingFile:
        """Read the header of a file of ``size_bytes``, and check its signatures and that it is the entry of ``key``.

        ``key`` is a key, or the digest of one. Nothing is written, and no more is read than the chunk in which the
        header ends.

        Raises:
            CorruptBlobError: it is not an artifact file, is damaged, or is the entry of another key.
            FormatVersionError: it has another format.
            UntrustedEntryError: ``admit`` rejects it.
            Exception: any exception of ``chunks``.
        """
        received = bytearray()

        def read_first(count: int) -> bytes:
            while len(received) < count:
                chunk = next(chunks, b"")
                if not chunk:
                    raise CorruptBlobError(where, "size", f"it ends after {len(received)} bytes")
                received.extend(chunk)
            return bytes(memoryview(received)[:count])  # a slice of a bytearray would be a second copy

        prelude = parse_prelude(read_first(min(PRELUDE_BYTES, size_bytes)), size_bytes, where)
        header = parse_header(read_first(prelude.members_from), prelude, where, admit)
        if header.key != key:
            check_document(header, where)
            if header.key.digest != key:
                raise CorruptBlobError(where, "key", f"it is the entry of key {header.key.digest[:16]}")
        return cls(header, received, chunks, where)

    def copy_to(self, fd: int) -> None:
        """Write the whole file to an empty one as its chunks arrive.

        Raises:
            CorruptBlobError: it has more or fewer bytes than its header says.
            OSError: it cannot be written.
            Exception: any exception of ``chunks``.
        """
        size_bytes = self.header.file_bytes
        write_at(fd, memoryview(self.received)[:size_bytes], 0)
        offset = len(self.received)
        for chunk in self.chunks:
            if offset + len(chunk) > size_bytes:
                break
            write_at(fd, chunk, offset)
            offset += len(chunk)
        if offset != size_bytes:
            raise CorruptBlobError(self.where, "size", f"it does not have the {size_bytes} bytes of its header")

    def spool(self, admit: Admit | None) -> ArtifactFile:
        """Write it into an unlinked temporary file, and return that open; its members are not verified yet.

        Raises:
            CorruptBlobError: its size or its header is damaged.
            OSError: it cannot be written or read.
            Exception: any exception of ``chunks``.
        """
        import tempfile  # a put does not need it

        with TemporaryFile(Path(tempfile.gettempdir())) as temporary:
            self.copy_to(temporary.fd)
            file = ArtifactFile(temporary.path, admit=admit)
            temporary.path.unlink()
            temporary.close()
        if file.header != self.header:
            file.close()
            raise CorruptBlobError(self.where, "header", "it does not read back as written")
        return file

    def load(self, admit: Admit | None) -> dict[str, Buffer]:
        """Return the verified bytes of all members, without storing the file.

        Raises:
            CorruptBlobError: it is damaged.
            OSError: it cannot be written or read.
            Exception: any exception of ``chunks``.
        """
        file = self.spool(admit)
        try:
            return file.load(mapped=True)
        finally:
            file.close()


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
