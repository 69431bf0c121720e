"""External data: the files beside a model that have its tensors, mapped and never read as a whole.

A model says in text which file has a tensor, so that text is not trusted: no path out of the model's own folder, no
link, nothing that is no regular file.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from trtcache.digests import Digest
from trtcache.errors import OnnxFileError

if TYPE_CHECKING:
    from collections.abc import Iterable


_MOST_DIGITS = 100
_MOST_NAME_BYTES = 255
_MOST_PATH_BYTES = 4000


class ExternalData:
    """The files that tensors of one model are in. Each is opened and mapped once, when it is first asked for.

    What was taken from it is the file's own memory: replace such a file by renaming, as with any file that is mapped.
    """

    def __init__(self, model: Path) -> None:
        """Find files beside ``model``."""
        self._model = model
        self._mapped: dict[str, tuple[memoryview, tuple[int, ...]]] = {}

    def content(self, tensor: Any, size_bytes: int) -> memoryview:
        """Return the bytes of a tensor.

        Raises:
            OnnxFileError: it says no file or a forbidden one, or the file is shorter; the message says which.
        """
        given = {one.key: one.value for one in tensor.external_data}
        where = f"tensor {tensor.name!r}"
        offset = self._number(given.get("offset", "0"), where, "offset")
        length = self._number(given.get("length", str(size_bytes)), where, "length")
        if length != size_bytes:
            raise self._error(f"{where} has {length} bytes of external data, and its shape needs {size_bytes}")
        content = self._content(given.get("location", ""), where)
        if offset + length > len(content):
            found = f"{offset} to {offset + length} of {given.get('location')}, which has {len(content)}"
            raise self._error(f"{where} is in bytes {found}: the file is cut off, or another model's")
        return content[offset : offset + length]

    def digests(self, locations: Iterable[str]) -> dict[str, Digest]:
        """Return the digests of files by the names that the model has for them.

        Raises:
            OnnxFileError: one is not there, or is forbidden.
        """
        return {one: Digest.of(self._content(one, f"external data {one!r}")) for one in sorted(set(locations))}

    def check_unchanged(self) -> None:
        """Make sure that no file was written to since it was opened.

        Raises:
            OnnxFileError: one was; what was read may be some of both.
        """
        for location, (_, before) in self._mapped.items():
            try:
                now = state(os.stat(self._model.parent / location))  # noqa: PTH116  # compared with fstat's
            except FileNotFoundError:
                continue  # a file that was replaced is no matter: what is mapped is the old one
            if now[0] == before[0] and now != before:
                raise self._error(f"{location} was written to while it was read; write a new file and rename it")

    def _number(self, text: str, where: str, what: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            raise self._error(f"{where} has external data with {what} {text[:40]!r}, which is no number of bytes")
        return int(text)

    def _content(self, location: str, where: str) -> memoryview:
        if location not in self._mapped:
            self._mapped[location] = self._map(self._path(location, where), where)
        return self._mapped[location][0]

    def _path(self, location: str, where: str) -> Path:
        """Return the path of a file below the model's folder.

        Raises:
            OnnxFileError: the location leads elsewhere, or over a link.
        """
        parts = PurePosixPath(location).parts
        if not location or "\\" in location or "\0" in location or location.startswith("/") or ".." in parts:
            raise self._error(f"{where} is in {location!r}, and external data must be in the model's own folder")
        path = self._model.parent
        for part in parts:
            path /= part
            if len(os.fsencode(part)) > _MOST_NAME_BYTES or len(os.fsencode(path)) > _MOST_PATH_BYTES:  # ENAMETOOLONG
                raise self._error(f"{where} is in {location[:40]!r}..., a name that is too long for a file")
            if path.is_symlink():
                remedy = "copy the files themselves into one folder (cp -L)"
                raise self._error(f"{where} is in {location!r}, which is a link and may lead anywhere; {remedy}")
        return path

    def _map(self, path: Path, where: str) -> tuple[memoryview, tuple[int, ...]]:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            remedy = "it belongs beside the model" if error.errno == errno.ENOENT else "see its permissions"
            raise self._error(f"{where} is in {path.name}, which cannot be read: {error.strerror}; {remedy}") from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise self._error(f"{where} is in {path.name}, which is no file")
            if not found.st_size:
                return memoryview(b""), state(found)
            return memoryview(mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE)), state(found)
        finally:
            os.close(descriptor)

    def _error(self, why: str) -> OnnxFileError:
        return OnnxFileError(str(self._model), why)


def state(found: os.stat_result) -> tuple[int, ...]:
    """Return what changes when a file is written to, its inode first."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
