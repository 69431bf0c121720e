"""The file of a program, open for reading: nothing of it is used before its size and digest are those of its header."""

from __future__ import annotations

import mmap
import os
import stat
import time
import zlib
from typing import TYPE_CHECKING

from trtcache.bundle.header import HEADER, SIGNATURES, Header, admit
from trtcache.bundle.zip_directory import directory
from trtcache.digests import hash_bytes
from trtcache.errors import (
    DamagedProgramError,
    NotAProgramError,
    ProgramFileError,
    ProgramSizesError,
    TamperedProgramError,
)
from trtcache.store.format import MAX_HEADER_BYTES, MAX_SIGNATURES_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trtcache.config.trust import PublicKey

_IGNORED = (HEADER, SIGNATURES)


class ProgramArchive:
    """An open program.

    Attributes:
        path: where it is.
        header: what it says of itself, admitted.

    The file is mapped where nobody else can write to it, and its weights and engines are then the file's own memory: so
    it is to be replaced by renaming a new one over it. A file that another user can write to is read once into memory.
    """

    def __init__(self, path: Path, *, keys: Sequence[PublicKey], local: bool) -> None:
        """Open a file, and see that somebody vouches for it.

        Args:
            path: the file.
            keys: whose signatures count.
            local: whether the caller vouches for it.

        Raises:
            NotAProgramError: it is none.
            DamagedProgramError: it is not as it was written.
            ProgramVersionError: it is of a later format.
            UntrustedProgramError: nobody vouches for it.
            ProgramFileError: it cannot be read.
        """
        self.path = path
        self._checked: set[str] = set()
        self._data = content_of(path)
        self._places = directory(self._data, str(path))
        raw, signatures = self._small(HEADER, MAX_HEADER_BYTES), self._small(SIGNATURES, MAX_SIGNATURES_BYTES)
        admit(raw, signatures, str(path), keys=keys, local=local, now_ns=time.time_ns())
        self.header = Header.read(raw, str(path))
        self._check_members()

    def read(self, name: str) -> memoryview:
        """Return the bytes of a member, after comparing them with its digest once.

        Raises:
            DamagedProgramError: they are others, or there is no such member.
        """
        said = self.header.members.get(name)
        if said is None:
            raise DamagedProgramError(str(self.path), f"it has no member {name}")
        content = self._raw(name)
        if name not in self._checked:
            if f"b3:{hash_bytes(content).hex()}" != said.digest:
                raise TamperedProgramError(str(self.path), f"its member {name} is not the one of its digest")
            self._checked.add(name)
        return content

    def _raw(self, name: str) -> memoryview:
        place = self._places[name]
        return self._data[place.start : place.start + place.size_bytes]

    def _small(self, name: str, most: int) -> bytes:
        """Return the bytes of a member that no digest covers, by its checksum."""
        place = self._places.get(name)
        if place is None:
            what = (
                "it is an archive without engines" if "models/model.json" in self._places else "it is another archive"
            )
            remedy = "give what trtcache.export wrote; a program of torch.export.save is compiled: trtcache.compile"
            raise NotAProgramError(str(self.path), f"{what}; {remedy}")
        if place.size_bytes > most:
            raise ProgramSizesError(str(self.path), f"its member {name} has {place.size_bytes} bytes")
        content = bytes(self._raw(name))
        if zlib.crc32(content) != place.crc:
            raise TamperedProgramError(str(self.path), f"its member {name} is not the one of its checksum")
        return content

    def _check_members(self) -> None:
        """Compare names and sizes with those of the header."""
        found = {name: place.size_bytes for name, place in self._places.items() if name not in _IGNORED}
        said = {name: one.size_bytes for name, one in self.header.members.items()}
        if found.keys() != said.keys():
            names = ", ".join(sorted(found.keys() ^ said.keys())[:4])
            raise TamperedProgramError(str(self.path), f"its members are not those of its header: {names}")
        if wrong := sorted(name for name, size in found.items() if size != said[name]):
            raise ProgramSizesError(str(self.path), f"its member {wrong[0]} is of another size than its header says")


def content_of(path: Path) -> memoryview:
    """Return a file's bytes, in memory that nobody else can write to.

    Raises:
        ProgramFileError: it cannot be read.
    """
    try:
        # O_NONBLOCK: a pipe of this name must not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        why = getattr(error, "strerror", None) or error
        raise ProgramFileError(str(path), f"it cannot be read: {why}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            raise NotAProgramError(str(path), "it is no file, or an empty one")
        if is_private(found):
            return memoryview(mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE))
        return _copied(descriptor, found.st_size, path)
    except (OSError, ValueError) as error:
        raise ProgramFileError(str(path), f"it cannot be read: {error}") from error
    finally:
        os.close(descriptor)


def is_private(found: os.stat_result) -> bool:
    """Say whether nobody else but root can write to a file, so that it may be mapped."""
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022


def _copied(descriptor: int, size_bytes: int, path: Path) -> memoryview:
    view, done = memoryview(mmap.mmap(-1, size_bytes)), 0
    while done < size_bytes:
        count = os.preadv(descriptor, [view[done:]], done)
        if not count:
            raise ProgramSizesError(str(path), "it became shorter while it was read")
        done += count
    return view
