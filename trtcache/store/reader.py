"""Read and verify artifact files; anything that deviates from the format is rejected.

Checked in this order: sizes against limits, digest of the header, the header; for each member the digest of the stored
bytes, the declared size of the frame, and the digest of the uncompressed bytes. The verified bytes are returned.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from blake3 import blake3

from trtcache.digests import hash_bytes
from trtcache.errors import CorruptBlobError
from trtcache.store.compression import decompress
from trtcache.store.files import write_at
from trtcache.store.format import (
    MAX_RATIO,
    PRELUDE_BYTES,
    Member,
    gaps,
    parse_header,
    parse_prelude,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.store.format import Admit

Buffer: TypeAlias = "bytes | memoryview"

MAP_FROM_BYTES = 1 << 20
SPARSE_FROM_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
_NOT_A_FILE = {errno.ELOOP, errno.ENXIO, errno.ENODEV}


class ArtifactFile:
    """An open artifact file with an authenticated header. Members are verified when they are read.

    The descriptor stays open for as long as the object lives, so a file that is pruned or replaced meanwhile remains
    readable.
    """

    def __init__(self, path: Path, *, shared: bool = False, anyones: bool = False, admit: Admit | None = None) -> None:
        """Open ``path``, check that it is a plain file that no other user can modify, and read its header.

        Files of a ``shared`` store may have been written by other members of its group, and ``anyones`` files by any
        user: their digest has to be known. ``admit`` checks the signatures before the header is parsed.

        Raises:
            FileNotFoundError: the file does not exist.
            OSError: it cannot be opened or read.
            CorruptBlobError: it is not an artifact file, or is damaged.
            FormatVersionError: it is an artifact file of another format.
            UntrustedEntryError: ``admit`` rejects it.
        """
        self.path = path
        try:
            # O_NONBLOCK: opening a FIFO in the file's place must not wait for its writer.
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise self._corrupt("file", "it is not a regular file") from error
            raise
        self.close = weakref.finalize(self, _close, self._fd)
        try:
            self.stat = os.fstat(self._fd)
            self._check_stat(shared=shared, anyones=anyones)
            raw = bytes(self._read(0, min(PRELUDE_BYTES, self.stat.st_size)))
            self.prelude = parse_prelude(raw, self.stat.st_size, str(path))
            rest = self._read(PRELUDE_BYTES, self.prelude.members_from - PRELUDE_BYTES)
            self.header = parse_header(raw + rest, self.prelude, str(path), admit)
        except BaseException:
            self.close()
            raise

    def _check_stat(self, *, shared: bool, anyones: bool) -> None:
        if not stat.S_ISREG(self.stat.st_mode):
            raise self._corrupt("file", "it is not a regular file")
        if anyones:
            return
        if self.stat.st_nlink > 1:
            raise self._corrupt("file", "it has another hard link, through which it can be modified")
        owned = shared or self.stat.st_uid in (os.geteuid(), 0)
        if not owned or self.stat.st_mode & (0o002 if shared else 0o022):
            raise self._corrupt("file", "another user could have written it")

    def touch(self) -> None:
        """Set the file's times to now, to record its use; errors are ignored."""
        try:
            os.utime(self._fd)
        except OSError:
            return

    def load(self, *, mapped: bool) -> dict[str, Buffer]:
        """Verify all other bytes of the file and return the verified bytes of all members."""
        self._check_gaps()
        return {member.name: self.read(member, mapped=mapped) for member in self.header.members}

    def read(self, member: Member, *, mapped: bool) -> Buffer:
        """Return the verified bytes of one member.

        ``mapped`` maps a large stored member instead of reading it. Use it only for files that no other user can change
        or truncate: a write could change the data after verification, and a truncation raises SIGBUS.

        Raises:
            CorruptBlobError: a byte is wrong.
            OSError: the file cannot be read, or there is not enough memory for it.
        """
        large = member.codec == "stored" and member.stored_bytes >= MAP_FROM_BYTES
        try:
            if mapped and large:
                start = member.offset - member.offset % mmap.ALLOCATIONGRANULARITY
                mapping = mmap.mmap(self._fd, member.end - start, prot=mmap.PROT_READ, offset=start)
                data = memoryview(mapping)[member.offset - start :]
            else:
                data = self._read(member.offset, member.stored_bytes)
            self._check_digest(data, member, member.stored_digest)
            if member.codec == "stored":
                return data if large else bytes(data)
            try:
                plain = decompress(data, member.size_bytes)
            except ValueError as error:
                raise self._corrupt("member", f"member {member.name!r} does not decompress: {error}") from error
            self._check_digest(plain, member, member.digest)
            return plain if member.size_bytes >= MAP_FROM_BYTES else bytes(plain)
        except MemoryError as error:
            raise self._too_large() from error

    def verify(self) -> None:
        """Verify every byte of the file and the decompressed members, holding one compressed member at a time."""
        self._check_written()
        self.verify_stored()
        for member in self.header.members:
            if member.codec == "zstd":
                self.read(member, mapped=False)

    def verify_stored(self) -> None:
        """Verify every stored byte of the file in constant memory, without decompressing.

        Raises:
            CorruptBlobError: a byte is wrong.
            OSError: the file cannot be read.
        """
        self._check_gaps()
        for member in self.header.members:
            hasher = blake3()
            for offset in range(member.offset, member.end, _CHUNK_BYTES):
                hasher.update(self._read(offset, min(_CHUNK_BYTES, member.end - offset)))
            if f"b3:{hasher.hexdigest()}" != member.stored_digest:
                raise self._corrupt("member", f"the digest of member {member.name!r} does not match")

    def copy_to(self, fd: int) -> None:
        """Copy the file's bytes to the beginning of another file."""
        offset = 0
        for chunk in self.chunks():
            write_at(fd, chunk, offset)
            offset += len(chunk)

    def chunks(self) -> Iterator[memoryview]:
        """Yield all bytes of the file as they are stored."""
        self._check_written()
        for offset in range(0, self.stat.st_size, _CHUNK_BYTES):
            yield self._read(offset, min(_CHUNK_BYTES, self.stat.st_size - offset))

    def _check_written(self) -> None:
        """Reject a large file that is nearly all a hole before reading it.

        In a shared store any member can create a sparse file of any length, and reading 1 TB of zeros takes minutes.
        """
        size, place, written = self.stat.st_size, 0, 0
        while place < size and size >= SPARSE_FROM_BYTES and written * MAX_RATIO < size:
            try:
                start = os.lseek(self._fd, place, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # a file system without holes
                    return
                raise self._corrupt("size", f"only {written} of its {size} bytes were ever written") from error
            place = os.lseek(self._fd, start, os.SEEK_HOLE)
            written += place - start

    def _check_gaps(self) -> None:
        for start, end in gaps(self.header, self.prelude):
            if bytes(self._read(start, end - start)).strip(b"\0"):
                raise self._corrupt("padding", f"bytes {start} to {end} are not all zero")

    def _check_digest(self, data: Buffer, member: Member, digest: str) -> None:
        if f"b3:{hash_bytes(data).hex()}" != digest:
            raise self._corrupt("member", f"the digest of member {member.name!r} does not match")

    def _read(self, offset: int, size: int) -> memoryview:
        try:
            buffer = memoryview(bytearray(size))
        except MemoryError as error:
            raise self._too_large() from error
        done = 0
        while done < size:
            count = os.preadv(self._fd, [buffer[done:]], offset + done)
            if count == 0:
                raise self._corrupt("size", f"it ends after {offset + done} bytes")
            done += count
        return buffer.toreadonly()

    def _too_large(self) -> OSError:
        return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), str(self.path))

    def _corrupt(self, reason: str, why: str) -> CorruptBlobError:
        return CorruptBlobError(str(self.path), reason, why)


def _close(fd: int) -> None:
    """Close a file that was read. Errors of a network file system at this point do not affect verified bytes."""
    with suppress(OSError):
        os.close(fd)
