"""One find in another tool's cache, and whether it can be imported."""

from __future__ import annotations

import errno
import os
import stat
import struct
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


ENGINE: Final = "engine"


@frozen_dataclass
class Span:
    """A range of a file that has not been read."""

    offset: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


@frozen_dataclass
class Find:
    """One find: an engine, or another file of the cache.

    Attributes:
        name: its path below the cache's directory; with ``#`` and a number if a file has several engines.
        path: its file.
        what: ``engine``, ``timing``, ``profile``, ``context``, ``encrypted``, ``folder`` or ``other``.
        file_bytes: the size of the file.
        changed_ns: when the file was written, nanoseconds since 1970.
        state: ``sound``; or ``unsafe``, ``damaged``, ``orphan``, ``duplicate`` or ``no engine``: it cannot be imported.
        why: the reason for the state, or a remark.
        span: the location of the engine in the file.
        plan: its header.
        capabilities: its compute capabilities, ``8.9`` or ``8.0+``; ``told_by`` is where that was found: ``header``,
            ``name`` or ``context``.
        digest: the digest of the engine's bytes.
    """

    name: str
    path: Path
    what: str
    file_bytes: int = 0
    changed_ns: int = 0
    state: str = "no engine"
    why: str = ""
    span: Span | None = None
    plan: PlanHeader | None = None
    capabilities: tuple[str, ...] = ()
    told_by: str = ""
    digest: Digest | None = None

    @property
    def keyed(self) -> bool:
        """Whether it can be imported."""
        return self.state == "sound"

    def rejected_as(self, state: str, why: str) -> Find:
        """Return this find with a state in which it cannot be imported."""
        return replace(self, state=state, why=why)


def label(name: str) -> str:
    """Return a file name as printable text, whatever its bytes are."""
    return os.fsencode(name).decode(errors="backslashreplace")


def open_find(find: Find) -> tuple[Find, PlainFile | None]:
    """Open a find's file; return it with its size, and the file unless another user could have written it."""
    try:
        file = PlainFile(find.path)
    except ValueError as error:
        return find.rejected_as("unsafe", str(error)), None
    except OSError as error:
        return find.rejected_as("unsafe", f"it cannot be read: {error.strerror}"), None
    sized = replace(find, file_bytes=file.size_bytes, changed_ns=file.changed_ns)
    if file.unsafe:
        file.close()
        return sized.rejected_as("unsafe", file.unsafe), None
    return sized, file


def inspect_engine(find: Find, file: PlainFile, span: Span) -> Find:
    """Return a find with the properties of the engine at a span of its file."""
    try:
        if span.offset + span.size_bytes > file.size_bytes:
            raise ValueError(f"it ends at {file.size_bytes}, within its engine")  # noqa: TRY301  # handled below
        plan = read_header(file.read(span.offset, HEADER_BYTES), span.size_bytes)
        digest = file.digest(span.offset, span.size_bytes)
    except ValueError as error:
        return find.rejected_as("damaged", str(error))
    found = replace(find, state="sound", span=span, plan=plan, digest=digest)
    return replace(found, capabilities=plan.capabilities, told_by="header" if plan.capabilities else "")


CHUNK_BYTES: Final = 1 << 20
_NO_FILE = {errno.ELOOP: "it is a link", errno.ENXIO: "it is a pipe", errno.ENODEV: "it is a device"}


class PlainFile:
    """An open file. ``unsafe`` says why another user could have written it, or is empty."""

    def __init__(self, path: Path) -> None:
        """Open ``path`` without following a link and without waiting.

        Raises:
            ValueError: it is a link, a pipe, a directory or a device.
            OSError: it cannot be opened.
        """
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise ValueError(_NO_FILE[error.errno]) from error
            raise
        self.close = weakref.finalize(self, os.close, self._fd)
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise ValueError("it is not a regular file")
        self.size_bytes, self.changed_ns = found.st_size, found.st_mtime_ns
        self.unsafe = ""
        if found.st_uid not in (os.geteuid(), 0):
            self.unsafe = f"it belongs to user {found.st_uid}"
        elif found.st_nlink > 1:
            self.unsafe = "it has another name somewhere, a hard link, through which it can change"
        elif found.st_mode & 0o022:
            self.unsafe = "other users may write to it; if none did, run: chmod go-w"

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of the file; fewer at its end."""
        return os.pread(self._fd, size_bytes, offset)

    def chunks(self, offset: int, size_bytes: int) -> Iterator[bytes]:
        """Yield a range of the file in chunks of a MiB.

        Raises:
            ValueError: the file is shorter.
        """
        end = offset + size_bytes
        while offset < end:
            data = self.read(offset, min(CHUNK_BYTES, end - offset))
            if not data:
                raise ValueError(f"it ends at {offset}")
            yield data
            offset += len(data)

    def digest(self, offset: int, size_bytes: int) -> Digest:
        """Return the digest of a range of the file."""
        hasher = blake3()
        for data in self.chunks(offset, size_bytes):
            hasher.update(data)
        return Digest(hasher.hexdigest(), size_bytes)


HEADER_BYTES: Final = 64

_TENSORRT, _OLDER, _RTX = b"ftrt", b"ptrt", b"vtrt"
_RTX_LAYOUT = 2
_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
_FIELDS = struct.Struct("<4sIQQ4B4sI")


@frozen_dataclass
class PlanHeader:
    """A plan's library and compute capabilities; these are empty if the header does not contain them.

    ``version`` is None if its layout is unknown.
    """

    library: str
    version: str | None
    capabilities: tuple[str, ...]


def read_header(head: bytes, size_bytes: int) -> PlanHeader:
    """Parse the first bytes of a plan that is ``size_bytes`` long.

    Raises:
        ValueError: it is not a plan, or its length differs from the declared one.
    """
    if len(head) < HEADER_BYTES:
        raise ValueError(f"{len(head)} bytes are not a plan")
    tag, layout, kind, declared_bytes, *version, _, capabilities = _FIELDS.unpack_from(head)
    text = ".".join(map(str, version))
    if tag == _TENSORRT:
        return PlanHeader("TensorRT", text if layout == 0 else None, ())
    if tag == _OLDER:
        return PlanHeader("TensorRT", None, ())
    if tag != _RTX:
        raise ValueError("it does not start like a plan")
    if (layout, kind) != (0, _RTX_LAYOUT):
        return PlanHeader("TensorRT-RTX", None, ())
    if declared_bytes != size_bytes:
        raise ValueError(f"it is {size_bytes} bytes long, and its header declares {declared_bytes}")
    names = tuple(name for place, name in enumerate(_CAPABILITIES) if capabilities >> place & 1)
    return PlanHeader("TensorRT-RTX", text, names)
