"""Artifact files that arrive in chunks, as from a network: authenticate the header first, then write the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file of which the header was received and authenticated. ``begin`` holds all bytes that were received so far.

    ``where`` is its address for messages. The members are verified when the file is stored or loaded.
    """

    header: EntryHeader
    begin: bytearray
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
        begin = bytearray()

        def require(count: int) -> bytes:
            while len(begin) < count:
                chunk = next(chunks, b"")
                if not chunk:
                    raise CorruptBlobError(where, "size", f"it ends at {len(begin)}")
                begin.extend(chunk)
            return bytes(memoryview(begin)[:count])  # a slice of begin would be a second copy

        prelude = parse_prelude(require(min(PRELUDE_BYTES, size_bytes)), size_bytes, where)
        header = parse_header(require(prelude.members_from), prelude, where, admit)
        if header.key != key:
            check_document(header, where)
            if header.key.digest != key:
                raise CorruptBlobError(where, "key", f"it is the entry of key {header.key.digest[:16]}")
        return cls(header, begin, chunks, where)

    def write(self, fd: int) -> None:
        """Write the whole file to an empty one while it arrives.

        Raises:
            CorruptBlobError: it has more or fewer bytes than its header says.
            OSError: it cannot be written.
            Exception: any exception of ``chunks``.
        """
        size_bytes = self.header.file_bytes
        write_at(fd, memoryview(self.begin)[:size_bytes], 0)
        offset = len(self.begin)
        for chunk in self.chunks:
            if offset + len(chunk) > size_bytes:
                break
            write_at(fd, chunk, offset)
            offset += len(chunk)
        if offset != size_bytes:
            raise CorruptBlobError(self.where, "size", f"it does not have the {size_bytes} bytes of its header")

    def spool(self, folder: Path, admit: Admit | None) -> ArtifactFile:
        """Write the file into ``folder``, without a name, and return it open; its members are not verified yet.

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
