"""Read and verify artifact files, and list those below a root directory.

Checked in this order: sizes against limits, digest of the header, the header; for each member the digest of the stored
bytes, the declared size of the frame, and the digest of the uncompressed bytes. The verified bytes are returned.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import re
import stat
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from blake3 import blake3

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import hash_bytes
from trtcache.errors import AmbiguousKeyError, CorruptBlobError, UnknownKeyError
from trtcache.store.compression import decompress
from trtcache.store.files import write_at
from trtcache.store.format import MAX_RATIO, PRELUDE_BYTES, Member, check_document, gaps, parse_header, parse_prelude
from trtcache.store.root import is_immutable, is_private

if TYPE_CHECKING:
    from trtcache.store.format import Admit, EntryHeader
    from trtcache.store.signatures import Admission, Verdict


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


_LOG = logging.getLogger("trtcache.store")

SUFFIX: Final = ".trtc"

_ENTRY_NAME = re.compile(r"([0-9a-f]{64})\.trtc")
_HEX = re.compile(r"[0-9a-f]{1,64}")
LARGEST = (1 << 63) - 1
_FOLDER_NAME = re.compile(r"[0-9a-f]{2}")


@frozen_dataclass
class EntryStat:
    """Directory metadata of an entry. ``used_ns`` is the file's modification time.

    ``inode`` is the lower 63 bits of its number: SQLite has no larger integers, and some file systems use all 64.
    A modification time after 2262 counts as one of 2262.
    """

    digest: str
    file_bytes: int
    used_ns: int
    inode: int

    @classmethod
    def of(cls, digest: str, status: os.stat_result) -> EntryStat:
        """Build the metadata from the status of the entry's file."""
        return cls(digest, status.st_size, min(status.st_mtime_ns or 0, LARGEST), status.st_ino & LARGEST)


def folders(root: Path, of: str = "entries") -> list[str]:
    """Return the names of the directories for entries, or for ``locks``; links are skipped."""
    try:
        with os.scandir(root / of) as items:
            return [
                item.name for item in items if _FOLDER_NAME.fullmatch(item.name) and item.is_dir(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


class StoredEntries:
    """The entries below ``root``, read-only. In a ``shared`` store, any member of the group may have written them."""

    def __init__(self, root: Path, admission: Admission, *, shared: bool) -> None:
        self.root, self.shared, self.admission = root, shared, admission

    @cached_property
    def private(self) -> bool:
        """Whether no other user can modify a mapped file of the store, so that large members are mapped.

        True if only this user can access it and it is on a local disk, or if it is on a read-only file system.
        """
        return is_private(self.root) or is_immutable(self.root)

    def path(self, digest: str) -> Path:
        """Return the path for the entry of a key digest."""
        return self.root.joinpath("entries", digest[:2], f"{digest}{SUFFIX}")

    def contains(self, digest: str) -> bool:
        """Return whether there is a file for a key digest, without reading it."""
        try:
            return self.path(digest).exists()
        except OSError:  # another member of a shared store can create a directory that is closed to this user
            return False

    def _open(self, digest: str, admit: Admit | None = None) -> ArtifactFile:
        file = ArtifactFile(self.path(digest), shared=self.shared, admit=admit)
        if file.header.key.digest != digest:
            raise CorruptBlobError(str(file.path), "key", f"it is the entry of key {file.header.key.digest}")
        return file

    def stat(self, digest: str) -> EntryStat:
        """Return the directory metadata of one entry.

        Raises:
            UnknownKeyError: there is no entry with this digest.
        """
        try:
            status = self.path(digest).lstat()
        except FileNotFoundError as error:
            raise UnknownKeyError(digest) from error
        return EntryStat.of(digest, status)

    def scan(self) -> Iterator[EntryStat]:
        """Yield the directory metadata of each entry, unordered, without opening any file."""
        for folder in folders(self.root):
            yield from self._scan_folder(folder)

    def _scan_folder(self, folder: str) -> Iterator[EntryStat]:
        try:
            items = list(os.scandir(self.root / "entries" / folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError as error:  # another member of a shared store can create an unreadable directory
            _LOG.warning("%s", error)
            return
        for item in items:
            match = _ENTRY_NAME.fullmatch(item.name)
            if match is None:
                continue
            try:
                status = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError as error:  # of the directory, which can be listed and not searched
                _LOG.warning("%s", error)
                return
            if stat.S_ISREG(status.st_mode):
                yield EntryStat.of(match[1], status)

    def header(self, digest: str) -> EntryHeader:
        """Return an entry's authenticated header; its members are not read."""
        return self._inspect(digest, verify=False)

    def verdict(self, digest: str) -> Verdict:
        """Verify an entry's signatures and return who signed it."""
        verdicts: list[Verdict] = []
        self._inspect(digest, verify=False, admit=lambda *front: verdicts.append(self.admission.verdict(*front)))
        return verdicts[0]

    def check(self, digest: str) -> EntryHeader:
        """Verify every byte of an entry's file, its decompressed members, and its key."""
        return self._inspect(digest, verify=True)

    def _inspect(self, digest: str, *, verify: bool, admit: Admit | None = None) -> EntryHeader:
        try:
            file = self._open(digest, admit)
        except FileNotFoundError as error:
            raise UnknownKeyError(digest) from error
        try:
            if verify:
                file.verify()
                check_document(file.header, str(file.path))
        finally:
            file.close()
        return file.header

    def pins(self) -> frozenset[str]:
        """Return the digests of pinned entries, which are never pruned."""
        try:
            names = os.listdir(self.root / "pins")  # noqa: PTH208  # only the names are needed
        except FileNotFoundError:
            return frozenset()
        return frozenset(name for name in names if len(name) == 64 and _HEX.fullmatch(name))

    def is_pinned(self, digest: str) -> bool:
        """Return whether an entry is pinned now."""
        return os.path.lexists(self.root / "pins" / digest)

    def resolve(self, prefix: str) -> str:
        """Return the full digest of the one entry whose key starts with ``prefix`` (optionally ``b3:`` and the prefix).

        Raises:
            UnknownKeyError: no key starts with it.
            AmbiguousKeyError: several keys do.
        """
        wanted = prefix.lower().removeprefix("b3:")
        if not _HEX.fullmatch(wanted):
            raise UnknownKeyError(prefix)
        near = self.scan() if len(wanted) < 2 else self._scan_folder(wanted[:2])
        matches = sorted(entry.digest for entry in near if entry.digest.startswith(wanted))
        if not matches:
            raise UnknownKeyError(prefix)
        if len(matches) > 1:
            raise AmbiguousKeyError(wanted, tuple(matches))
        return matches[0]
