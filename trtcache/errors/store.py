"""Errors of the store: what reaches a caller only where there is no way on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trtcache.errors.base import TrtcacheError


class StoreError(TrtcacheError):
    """The store cannot do what was asked."""

    exit_code: ClassVar[int] = 3


@dataclass(eq=False)
class NotAStoreError(StoreError):
    """A directory holds something that is not a trtcache store."""

    root: str
    why: str

    def __str__(self) -> str:
        return f"{self.root} is not a trtcache store: {self.why}"


@dataclass(eq=False)
class UnsafeStoreError(StoreError):
    """Another user could put engines, and so code, into this store."""

    root: str
    why: str

    def __str__(self) -> str:
        return f"{self.root} is not safe to load engines from: {self.why}"


@dataclass(eq=False)
class CorruptBlobError(StoreError):
    """An artifact file is not what its header says.

    ``reason`` is one short word that is counted: ``magic``, ``header``, ``size``, ``padding``, ``member``, ``key``.
    """

    path: str
    reason: str
    why: str
    exit_code: ClassVar[int] = 4

    def __str__(self) -> str:
        return f"{self.path}: damaged ({self.reason}): {self.why}"


@dataclass(eq=False)
class UntrustedEntryError(StoreError):
    """An entry is sound, and not signed by a key that counts here.

    ``reason`` is one short word that is counted: ``unsigned``, ``malformed``, ``unknown-key``, ``expired-key``,
    ``bad-signature``.
    """

    path: str
    reason: str
    signer: str = ""

    def __str__(self) -> str:
        whose = f" by {self.signer}" if self.signer else ""
        return f"{self.path} is not used: signatures are required, and its own{whose} does not count ({self.reason})"


@dataclass(eq=False)
class UntrustedWriterError(StoreError):
    """An entry was not stored, because nobody who asks for the same signatures would use it."""

    root: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.root} asks for signatures, and nothing is stored there: {self.why}; "
            f"see 'trtcache trust', or set TRTCACHE_SIGNATURES=off to use entries of whoever can write there"
        )


@dataclass(eq=False)
class FormatVersionError(StoreError):
    """A file or a store was written in a format that this version does not read."""

    path: str
    found: int
    known: int

    def __str__(self) -> str:
        remedy = "upgrade trtcache or name another cache directory"
        return f"{self.path}: format {self.found}, but this trtcache reads format {self.known}; {remedy}"


@dataclass(eq=False)
class HeaderSizeError(StoreError):
    """An entry cannot be stored: its key document and provenance are larger than an artifact's header may be."""

    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"a header of {self.size_bytes} bytes, and the format allows {self.limit_bytes}; "
            f"give large parts of the key as digests"
        )


@dataclass(eq=False)
class LockTimeoutError(StoreError):
    """Another process held a lock for longer than the caller would wait."""

    path: str
    waited_s: float

    def __str__(self) -> str:
        return f"{self.path}: another process has held this lock for {self.waited_s:.0f} s"


@dataclass(eq=False)
class BusyError(StoreError):
    """Another process builds what was wanted, and the caller would not wait. ``builder`` is ``host:pid`` if known."""

    kind: str
    key: str
    builder: str
    waited_s: float

    def __str__(self) -> str:
        who = self.builder or "another process"
        return (
            f"{who} builds {self.kind} {self.key[:16]} now, and after {self.waited_s:.0f} s on_busy='eager' waits no "
            f"longer; use on_busy='wait', or see 'trtcache ls --building'"
        )


@dataclass(eq=False)
class ReadOnlyError(StoreError):
    """A change was asked of a store that cannot be written."""

    root: str
    action: str

    def __str__(self) -> str:
        return f"cannot {self.action}: {self.root} is read-only (by TRTCACHE_READONLY=1 or by its permissions)"


@dataclass(eq=False)
class IndexUnavailableError(StoreError):
    """The index of a store cannot be read or written now; its entries are untouched."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: the index cannot be used: {self.why}"


@dataclass(eq=False)
class UnknownKeyError(StoreError):
    """No entry has this key."""

    prefix: str
    exit_code: ClassVar[int] = 5

    def __str__(self) -> str:
        return f"no entry has a key that begins with {self.prefix!r}; 'trtcache ls --all' lists them"


@dataclass(eq=False)
class AmbiguousKeyError(StoreError):
    """Several entries have keys with this prefix."""

    prefix: str
    matches: tuple[str, ...]
    exit_code: ClassVar[int] = 5

    def __str__(self) -> str:
        shown = ", ".join(match[: len(self.prefix) + 8] for match in self.matches[:4])
        more = ", ..." if len(self.matches) > 4 else ""
        return f"{len(self.matches)} entries have keys that begin with {self.prefix!r} ({shown}{more}); give more of it"
