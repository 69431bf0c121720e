"""The entries below one root directory, as who only looks sees them."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING

from trtcache.errors import CorruptBlobError, UnknownKeyError
from trtcache.store.format import check_document
from trtcache.store.listing import SUFFIX, EntryStat, resolve, scan
from trtcache.store.reader import ArtifactFile
from trtcache.store.root import is_immutable, is_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.store.admission import Admission
    from trtcache.store.format import Admit, EntryHeader
    from trtcache.store.signatures import Verdict

_HEX = re.compile(r"[0-9a-f]{1,64}")


class StoredEntries:
    """The entries below ``root``. Nothing is changed; members of a group may have written those of a ``shared`` one."""

    def __init__(self, root: Path, admission: Admission, *, shared: bool) -> None:
        self.root, self.shared, self.admission = root, shared, admission

    @cached_property
    def private(self) -> bool:
        """Whether nobody else can change a file of the store while it is mapped, so that large members are.

        That is so where only this user reaches it, on a local disk, and on a file system that cannot be written.
        """
        return is_private(self.root) or is_immutable(self.root)

    def path(self, digest: str) -> Path:
        """Return where the entry of a key digest is, or would be."""
        return self.root / "entries" / digest[:2] / f"{digest}{SUFFIX}"

    def _open(self, digest: str, admit: Admit | None = None) -> ArtifactFile:
        file = ArtifactFile(self.path(digest), shared=self.shared, admit=admit)
        if file.header.key.digest != digest:
            raise CorruptBlobError(str(file.path), "key", f"it is the entry of key {file.header.key.digest}")
        return file

    def stat(self, digest: str) -> EntryStat:
        """Return what the directory says about one entry.

        Raises:
            UnknownKeyError: there is no such entry.
        """
        try:
            found = self.path(digest).lstat()
        except FileNotFoundError as error:
            raise UnknownKeyError(digest) from error
        return EntryStat(digest, found.st_size, found.st_mtime_ns, found.st_ino)

    def scan(self) -> Iterator[EntryStat]:
        """Yield what the directories say about each entry, in no order, opening no file."""
        return scan(self.root)

    def header(self, digest: str) -> EntryHeader:
        """Return an entry's authenticated header; its members are not looked at.

        Raises:
            UnknownKeyError: there is no such entry.
            CorruptBlobError: the header is damaged, or another entry's.
            FormatVersionError: the file is of a later format.
            OSError: the file cannot be read.
        """
        return self._inspect(digest, verify=False)

    def verdict(self, digest: str) -> Verdict:
        """Return what an entry's signatures are worth here: by whom it is signed.

        Raises:
            UnknownKeyError: there is no such entry.
            CorruptBlobError: the header is damaged, or another entry's.
            FormatVersionError: the file is of a later format.
            OSError: the file cannot be read.
            SettingsError: ``cryptography`` is not installed.
        """
        found: list[Verdict] = []
        self._inspect(digest, verify=False, admit=lambda *front: found.append(self.admission.verdict(*front)))
        return found[0]

    def check(self, digest: str) -> EntryHeader:
        """Verify every byte of an entry's file, what its members decompress to, and its key.

        Raises:
            UnknownKeyError: there is no such entry.
            CorruptBlobError: something is wrong.
            FormatVersionError: the file is of a later format.
            OSError: the file cannot be read.
        """
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
        """Return the digests of pinned entries, which no pruning removes."""
        try:
            names = os.listdir(self.root / "pins")  # noqa: PTH208  # names alone are wanted
        except FileNotFoundError:
            return frozenset()
        return frozenset(name for name in names if len(name) == 64 and _HEX.fullmatch(name))

    def resolve(self, prefix: str) -> str:
        """Return the full digest of the one entry whose key begins with ``prefix`` (``b3:`` may come first).

        Raises:
            UnknownKeyError: there is none.
            AmbiguousKeyError: there are several.
        """
        return resolve(self.root, prefix)
