"""The contract of stores: what a place with entries does.

``DiskStore`` implements it on a file system. To add another kind of store, derive a class from ``Store``, run
``trtcache.testing.StoreContract`` on it, and put it into a cache as a lower layer, which is only read::

    cache.layers = dataclasses.replace(cache.layers, lower=(*cache.layers.lower, store))

Layers use ``location``, ``contains``, ``get`` and ``copy_to`` of a lower store, and nothing else. The other methods are
called by the contract's tests, which put entries and look at them; outside of these only a ``DiskStore``'s are called.
The upper layer, which is written to, is a ``DiskStore``, and so is each store that is listed, pruned or searched for
the reason of a miss (``Layers.disks``). Settings name directories only, so builds in other processes, as in the
background, do not look in another kind of store.

A place that several hosts write to, such as Redis, is not a store but a remote: it needs a scheme in
``trtcache.config.remotes`` and the methods of ``trtcache.remote.bucket.Bucket``, which has one implementation so far.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import CorruptBlobError, FormatVersionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from trtcache.digests import CacheKey
    from trtcache.errors import UntrustedEntryError
    from trtcache.store.disk import DiskStore
    from trtcache.store.entry import Entry
    from trtcache.store.format import Content, EntryHeader
    from trtcache.store.reading import EntryStat


ABSENT: Final = "absent"
COLLISION: Final = "collision"


@frozen_dataclass
class Miss:
    """The reason for a miss.

    Attributes:
        reason: ``absent``, ``corrupt:<why>``, ``untrusted:<why>``, ``unreadable:<why>``, ``collision`` or ``format``;
            from a ``Cache`` also ``disabled``, ``unusable``, ``recache``, or the reason why an entry was rejected.
    """

    reason: str


def miss_reason(error: CorruptBlobError | FormatVersionError | UntrustedEntryError) -> str:
    """Return the reason for a miss of an entry that cannot be used."""
    if isinstance(error, FormatVersionError):
        return "format"
    return f"{'corrupt' if isinstance(error, CorruptBlobError) else 'untrusted'}:{error.reason}"


_MEANINGS = {
    "corrupt": "the stored entry was damaged",
    "untrusted": "the stored entry has no trusted signature",
    "unreadable": "the stored entry cannot be read",
    "format": "the stored entry has a later format",
    COLLISION: "the stored entry is one of another document",
}


def describe_miss(reason: str) -> str:
    """Return what was wrong with a stored entry, from the reason for a miss; empty if there was none."""
    kind, _, detail = reason.partition(":")
    meaning = _MEANINGS.get(kind, "")
    return f"{meaning} ({detail})" if meaning and detail else meaning


class Store(ABC):
    """Entries by key digest.

    An entry MUST be complete or absent for every reader at any time, also while it is replaced and after a crash.

    Attributes:
        writable: whether ``put``, ``remove`` and ``quarantine`` can be called; otherwise they raise
            ReadOnlyError and nothing in the store changes, not even the time of the last use.
    """

    writable: bool

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the store is: a directory or a URL. Two stores of one location are the same."""

    @abstractmethod
    def contains(self, digest: str) -> bool:
        """Return whether there is an entry with this key digest, without reading it."""

    @abstractmethod
    def get(self, key: CacheKey) -> Entry | Miss:
        """Return the entry of ``key`` with outcome ``hit``, or the reason for a miss; MUST NOT raise for a bad entry.

        Every byte MUST be verified, the key document compared, and the signatures that the store requires checked.
        ``store.entry.entry_of`` makes an entry; its ``path`` is None in a store without files.
        """

    @abstractmethod
    def put(
        self,
        key: CacheKey,
        contents: Mapping[str, Content],
        *,
        kind: str,
        name: str | None = None,
        build_s: float = 0.0,
        provenance: Mapping[str, str] | None = None,
    ) -> Entry:
        """Store the result of a build, replacing any entry of ``key``, and return it with outcome ``built``.

        When it returns, the entry MUST be durable; when it raises, an older entry MUST be unchanged.

        Raises:
            ReadOnlyError: the store cannot be written.
            OSError: it is full or failing.
        """

    @abstractmethod
    def header(self, digest: str) -> EntryHeader:
        """Return an entry's authenticated header; its members are not read.

        Raises:
            UnknownKeyError: there is no entry with this digest.
            CorruptBlobError: the header is damaged, or belongs to another entry.
        """

    @abstractmethod
    def stat(self, digest: str) -> EntryStat:
        """Return the size and the time of the last use of one entry.

        Raises:
            UnknownKeyError: there is no entry with this digest.
        """

    @abstractmethod
    def scan(self) -> Iterator[EntryStat]:
        """Yield the size and the time of the last use of each entry, unordered, without reading any entry."""

    @abstractmethod
    def remove(self, digest: str) -> int:
        """Delete an entry and return the bytes freed, 0 if there was none.

        Raises:
            ReadOnlyError: the store cannot be written.
            OSError: it cannot be deleted.
        """

    @abstractmethod
    def quarantine(self, digest: str, reason: str) -> None:
        """Remove a bad entry, but keep it for inspection if the store can. Do nothing if it is gone.

        Raises:
            ReadOnlyError: the store cannot be written.
            OSError: it cannot be moved.
        """

    def copy_to(self, entry: Entry, target: DiskStore) -> Path | None:
        """Store an entry of this store in another one too, and return its path there; None if it may not be copied.

        Raises:
            OSError: it cannot be read or written.
            StoreError: it is damaged meanwhile, or ``target`` does not take it.
        """
        copied = target.put(
            entry.key,
            entry.contents,
            kind=entry.kind,
            name=entry.name,
            build_s=entry.build_s,
            provenance=entry.provenance,
        )
        return copied.path

    @abstractmethod
    def pins(self) -> frozenset[str]:
        """Return the digests of pinned entries, which are never pruned."""
