"""Artifact files that arrive in chunks, as from a network: authenticate the header first, then write the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import CorruptBlobError
from trtcache.store.files import TemporaryFile, write_at
from trtcache.store.format import PRELUDE_BYTES, check_document, parse_header, parse_prelude
from trtcache.store.reader import ArtifactFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.digests import CacheKey
    from trtcache.store.format import Admit, EntryHeader
    from trtcache.store.reader import Buffer


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

    def write(self, fd: int) -> None:
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

    def spool(self, folder: Path, admit: Admit | None) -> ArtifactFile:
        """Write the file into an unlinked file in ``folder``, and return it open; its members are not verified yet.

        Raises:
            CorruptBlobError: its size or its header is damaged.
            OSError: it cannot be written or read.
            Exception: any exception of ``chunks``.
        """
        with TemporaryFile(folder) as temporary:
            self.write(temporary.fd)
            file = ArtifactFile(temporary.path, admit=admit)
            temporary.path.unlink()
            temporary.close()
        if file.header != self.header:
            file.close()
            raise CorruptBlobError(self.where, "header", "it does not read back as written")
        return file

    def load(self, folder: Path, admit: Admit | None) -> dict[str, Buffer]:
        """Return the verified bytes of all members, without storing the file.

        Raises:
            CorruptBlobError: it is damaged.
            OSError: it cannot be written or read.
            Exception: any exception of ``chunks``.
        """
        file = self.spool(folder, admit)
        try:
            return file.load(mapped=True)
        finally:
            file.close()
