"""The contract of stores: what a place with entries does, and entries as returned to callers.

Labels are validated before a build: a header that cannot be written would waste it.

``DiskStore`` implements it on a file system. To add another kind of store, derive a class from ``Store``, run
``trtcache.testing.StoreContract`` on it, and put it into a cache as a lower layer, which is only read::

    cache.layers = dataclasses.replace(cache.layers, lower=(*cache.layers.lower, store))

Look-ups call ``contains``, ``get`` and ``copy_to`` of such a store, and nothing else. The other methods are called by
the contract's tests, which put entries and look at them; outside of these only a ``DiskStore``'s are called. The upper
layer, which is written to, is a ``DiskStore``, and so is each store that is listed, pruned or
searched for the reason of a miss (``Layers.disks``). Settings name directories only, so builds in other processes, as
in the background, do not look in another kind of store.

A place that several hosts write to, such as Redis, is not a store but a remote: it needs a scheme in
``trtcache.config.remotes`` and the methods of ``trtcache.remote.bucket.Bucket``, which has one implementation so far.
"""

from __future__ import annotations

import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import atomic_write
from trtcache.errors import BuildError, CanonicalizationError, CorruptBlobError, FormatVersionError, UntrustedEntryError
from trtcache.store.format import DEFAULT_MEMBER, Built, Content, EntryHeader, contents_of

if TYPE_CHECKING:
    from trtcache.digests import CacheKey
    from trtcache.store.disk import DiskStore
    from trtcache.store.reader import ArtifactFile, Buffer, EntryStat


COMPANIONS = frozenset({"alias", "memo", "direct", "direct-why", "runtime_cache", "timing_cache"})
"""Key aliases (``memo`` before they were renamed), manifests and miss reasons of direct mode, and TensorRT's caches."""

REMOTE = "remote"
"""Origin of an entry that this look-up fetched from a remote."""

_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

Outcome: TypeAlias = Literal["hit", "built"]


def is_companion(kind: str) -> bool:
    """Return whether entries of this kind accompany engines; kinds of custom builders count as engines."""
    return kind in COMPANIONS


def check_kind(kind: object) -> None:
    """Validate a kind, such as ``aot_inductor``.

    Raises:
        CanonicalizationError: it is not 1 to 64 lower-case letters, digits, dots, underscores and hyphens.
    """
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        rule = "1 to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first"
        raise CanonicalizationError("kind", f"{kind!r:.100} is not {rule}")


def check_labels(name: object, provenance: object) -> None:
    """Validate a name, None or any Unicode text, and the provenance, None or a mapping of text to text.

    Raises:
        CanonicalizationError: one has another type.
    """
    texts: list[tuple[str, object]] = [] if name is None else [("name", name)]
    if provenance is not None:
        if not isinstance(provenance, Mapping):
            raise CanonicalizationError("provenance", f"expected a mapping of text, got {type(provenance).__name__}")
        for label, text in provenance.items():
            texts += [("a name in provenance", label), (f"provenance[{label!r}]", text)]
    for where, text in texts:
        if not isinstance(text, str):
            raise CanonicalizationError(where, f"expected text, got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CanonicalizationError(where, f"not valid Unicode: {error.reason}") from error


@frozen_dataclass(eq=False)
class Entry:
    """The artifact of a build, from the cache or newly built.

    ``outcome`` is ``hit`` or ``built``; ``reason`` is why it was built (``absent``, ``corrupt:member``, ``recache``,
    ...), and None for a hit. ``path`` is the artifact file, or None if it could not be stored. ``load_s`` is the time
    spent in the cache: to find and verify a hit, or to store the result of a build. ``origin`` is ``remote`` if this
    look-up fetched the entry from a remote, and otherwise empty. ``unstored`` is why a build could not be stored, and
    empty if it was.
    """

    key: CacheKey
    kind: str
    name: str | None
    build_s: float
    created_ns: int
    provenance: Mapping[str, str]
    outcome: Outcome
    reason: str | None
    path: Path | None
    load_s: float
    contents: Mapping[str, Content] = field(repr=False)
    origin: str = ""
    unstored: str = ""

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(self.contents)

    def read(self, name: str = DEFAULT_MEMBER) -> Buffer:
        """Return a member's bytes; those of a hit are exactly the verified bytes.

        Raises:
            KeyError: there is no member of this name.
            CorruptBlobError: the member was built as a file, and the artifact was damaged after it was stored.
        """
        if name not in self.contents:
            raise KeyError(f"entry {self.key.digest[:16]} has no member {name!r}; it has {', '.join(self.members)}")
        content: Any = self.contents[name]  # no path: it is stored, or in memory (``without_files``)
        return bytes(content) if isinstance(content, bytearray) else content

    def write(self, name: str, path: str | os.PathLike[str]) -> None:
        """Write a member to a file, atomically."""
        with atomic_write(Path(path)) as temporary, temporary.open("xb") as file:
            file.write(self.read(name))


class StoredContents(Mapping[str, "Content"]):
    """The members of an artifact that was just stored.

    Members built in memory are the same bytes objects, so later damage to the file cannot affect the caller. Members
    built as files, which may be deleted, are read from the artifact and verified on first access. It is closed when
    all members are in memory.
    """

    def __init__(self, file: ArtifactFile, built: Mapping[str, Content], *, mapped: bool) -> None:
        self._file = file
        self._mapped = mapped
        self._loaded = {name: content for name, content in built.items() if not isinstance(content, Path)}
        self._members = {member.name: member for member in file.header.members}
        self._lock = threading.Lock()
        self._close_if_loaded()

    def __getitem__(self, name: str) -> Content:
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._file.read(self._members[name], mapped=self._mapped)
                self._close_if_loaded()
            return self._loaded[name]

    def _close_if_loaded(self) -> None:
        if self._loaded.keys() >= self._members.keys():
            self._file.close()  # a mapping keeps its own reference to the file

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def entry_of(
    header: EntryHeader,
    contents: Mapping[str, Content],
    *,
    path: Path | None,
    outcome: Outcome,
    load_s: float = 0.0,
) -> Entry:
    """Return the entry described by a file's header."""
    labels = (header.key, header.kind, header.name, header.build_s, header.created_ns, header.provenance)
    return Entry(*labels, outcome, None, path, load_s, contents)


def without_files(entry: Entry, unstored: str = "") -> Entry:
    """Return a built entry that is not stored, with its members in memory: a later build may write to the same files.

    Raises:
        BuildError: a file cannot be read.
    """
    contents = dict(entry.contents)
    for name, file in entry.contents.items():
        if isinstance(file, Path):
            try:
                contents[name] = file.read_bytes()
            except OSError as error:
                raise BuildError(entry.kind, f"member {name!r}: {file} cannot be read: {error.strerror}") from error
    return replace(entry, contents=contents, unstored=unstored)


def run_build(
    key: CacheKey,
    build: Callable[[], Built],
    *,
    reason: str,
    name: str | None = None,
    provenance: Mapping[str, str] | None = None,
) -> Entry:
    """Build on a cache miss; return the entry with its contents in memory and in the build function's files."""
    import platform  # a hit needs neither import

    from trtcache.config.environment import installed_version

    began_s = time.perf_counter()
    contents = contents_of(build(), key.kind)
    build_s = time.perf_counter() - began_s
    machine = {
        "host": platform.node(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "python": platform.python_version(),
        "trtcache": installed_version(),
    }
    labels = (key, key.kind, name, build_s, time.time_ns(), {**machine, **(provenance or {})})
    return Entry(*labels, "built", reason, None, 0.0, contents)


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
        ``entry_of`` makes an entry; its ``path`` is None in a store without files.
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
        return target.put_entry(entry).path

    @abstractmethod
    def pins(self) -> frozenset[str]:
        """Return the digests of pinned entries, which are never pruned."""
