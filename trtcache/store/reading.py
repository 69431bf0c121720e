"""Read-only access to the entries below one root directory, and listings without opening any file."""

from __future__ import annotations

import logging
import os
import re
import stat
from functools import cached_property
from typing import TYPE_CHECKING, Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import AmbiguousKeyError, CorruptBlobError, UnknownKeyError
from trtcache.store.format import check_document
from trtcache.store.reader import ArtifactFile
from trtcache.store.root import is_immutable, is_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.store.format import Admit, EntryHeader
    from trtcache.store.signatures import Admission, Verdict

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
