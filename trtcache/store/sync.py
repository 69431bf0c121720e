"""Copy missing entries from other stores and remotes: plan the transfer, and execute it.

Entry files are self-describing, so a transfer copies each missing file. The sources are only read. Copies are verified
and renamed as in a put: after a kill only complete entries exist, and the next run continues with the rest. An entry's
file name is derived from the key in its header, and must match its name in the source.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import CorruptBlobError, FormatVersionError, RemoteError, StoreError, UntrustedEntryError
from trtcache.store.catalog import prune_after_put
from trtcache.store.disk import DiskStore
from trtcache.store.events import Event
from trtcache.store.index import write_rows
from trtcache.store.parallel import map_in_threads
from trtcache.store.record import Predicate, Record

if TYPE_CHECKING:
    from trtcache.store.format import Admit
    from trtcache.store.reader import ArtifactFile, EntryStat
    from trtcache.store.signatures import Admission
    from trtcache.store.writer import IncomingFile

_LOG = logging.getLogger("trtcache.store")
_ENDING_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}

BATCH_ENTRIES: Final = 256
"""Copies after which index rows are written and limits enforced.

If the process is killed, the next listing adds the missing rows.
"""

REMOTE_THREADS: Final = 32
"""Concurrent transfers from or to a remote. Between directories it is one at a time."""

Advance: TypeAlias = "Callable[[int], None]"
"""Callback for progress, called with the bytes of each entry that was transferred or refused."""


class SyncStore(Protocol):
    """A source or a target: a DiskStore, or the entries of a remote (``trtcache.remote.entries``)."""

    shared: bool
    admission: Admission

    @property
    def location(self) -> str:
        """The directory or the URL."""

    def address(self, digest: str) -> str:
        """Return where an entry is, for messages."""

    def scan(self) -> Iterator[EntryStat]:
        """Yield the size and the time of the last use, or of the upload, of each entry."""

    def pins(self) -> frozenset[str]:
        """Return the digests of pinned entries."""

    def pin(self, digest: str) -> None:
        """Pin an entry."""

    def open_entry(self, digest: str, admit: Admit | None) -> AbstractContextManager[ArtifactFile | IncomingFile]:
        """Open an entry. Its header MUST be authenticated, and its key document have this digest.

        Raises:
            FileNotFoundError: there is none.
        """

    def receive(self, file: ArtifactFile | IncomingFile) -> EntryStat | None:
        """Store an entry after all of its stored bytes were verified; return None if it is there already."""


@frozen_dataclass
class TransferItem:
    """An entry to be copied. The sources are tried in order."""

    record: Record
    sources: tuple[SyncStore, ...]


@frozen_dataclass
class RefusedEntry:
    """An entry that is not transferred. ``reason`` is as for a miss: ``corrupt:member``, ``untrusted:unsigned``."""

    digest: str
    root: str
    reason: str
    why: str


@frozen_dataclass
class SyncResult:
    """Result of a transfer. ``pinned`` are the newly pinned keys, ``freed_bytes`` the bytes pruned for the limits."""

    arrived: tuple[Record, ...]
    refused: tuple[RefusedEntry, ...]
    pinned: tuple[str, ...]
    freed_bytes: int


@frozen_dataclass
class SyncPlan:
    """A planned transfer. Nothing has been copied yet.

    ``present`` is the number of entries that the target already has, ``pins`` are the keys to pin in it.
    """

    target: SyncStore
    items: tuple[TransferItem, ...]
    present: int
    refused: tuple[RefusedEntry, ...]
    pins: frozenset[str]

    @property
    def file_bytes(self) -> int:
        """Size of the copies on disk."""
        return sum(item.record.file_bytes for item in self.items)

    def execute(
        self,
        *,
        max_size_bytes: int | None = None,
        max_entries: int | None = None,
        advance: Advance = lambda _file_bytes: None,
    ) -> SyncResult:
        """Copy and pin the entries, and keep the target under its limits as a put would. Refused entries are skipped.

        ``advance`` is called with the bytes of each entry that was transferred or refused.

        Raises:
            ReadOnlyError: the target cannot be written.
            OSError: it is full; copied entries stay, and the next run continues.
            StoreError: its entries cannot be listed.
        """
        disk = self.target if isinstance(self.target, DiskStore) else None
        stores = (self.target, *(source for item in self.items for source in item.sources))
        jobs = 1 if all(isinstance(store, DiskStore) for store in stores) else REMOTE_THREADS
        arrived: list[Record] = []
        refused, freed_bytes = list(self.refused), 0
        batch: list[Record] = []
        try:
            for item, result in map_in_threads(self._transfer, self.items, jobs):
                refused += result if isinstance(result, list) else []
                batch += [result] if isinstance(result, Record) else []
                advance(item.record.file_bytes)
                if len(batch) == BATCH_ENTRIES:
                    arrived, full_batch, batch = [*arrived, *batch], batch, []
                    freed_bytes += _add_rows(disk, full_batch, max_size_bytes, max_entries)
        finally:
            freed_bytes += _add_rows(disk, batch, max_size_bytes, max_entries)
        arrived = sorted([*arrived, *batch], key=lambda record: record.digest)
        # Pin the entries that the target had before as well.
        missing = sorted(self.pins - {item.record.digest for item in self.items} - self.target.pins())
        for digest in missing:
            self.target.pin(digest)
        pinned = {*missing, *(record.digest for record in arrived if record.pinned)}
        if self.items and disk is not None:
            disk.sweep()
        return SyncResult(tuple(arrived), tuple(refused), tuple(sorted(pinned)), freed_bytes)

    def _transfer(self, item: TransferItem) -> Record | list[RefusedEntry]:
        """Copy an entry from the first source that has an intact one; return its record, or why each source failed.

        An empty list: it was removed, or another process has uploaded it already.
        """
        digest, refused = item.record.digest, list[RefusedEntry]()
        for source in item.sources:
            try:
                with _open_entry(digest, source, self.target) as file:
                    header = file.header
                    stored: EntryStat | None
                    if isinstance(self.target, DiskStore):
                        stored = self.target.receive(file, durable=False)  # ``_add_rows`` flushes the names of many
                    else:
                        stored = self.target.receive(file)
                if digest in self.pins:
                    self.target.pin(digest)
                if stored is None:
                    return refused  # another process has uploaded it since the plan was made
                return Record.of(header, stored, pinned=digest in self.pins)
            except FileNotFoundError:
                continue  # removed since the plan was made
            except (OSError, StoreError) as error:
                if _ends_transfer(error):
                    raise
                refused.append(_refusal(digest, source, error))
        return refused


def _add_rows(
    target: DiskStore | None, records: list[Record], max_size_bytes: int | None, max_entries: int | None
) -> int:
    """Make copied entries durable, write their events and index rows, prune for the limits; return the bytes freed."""
    if target is None or not records:
        return 0
    target.make_durable(record.digest for record in records)
    now_ns = target.clock_ns()
    target.events.extend(Event(now_ns, "copy", "sync", record.kind, record.digest) for record in records)
    try:
        write_rows(target.index_root, put=records)
    except StoreError as error:
        _LOG.warning("%s", error)
    return prune_after_put(target, max_size_bytes, max_entries, keep=[record.digest for record in records])


def _ends_transfer(error: OSError | StoreError) -> bool:
    """Return whether the other entries would fail in the same way: a full disk, a remote that does not answer."""
    if isinstance(error, RemoteError):
        return error.reason not in ("cut", "archived", "refused")  # these concern one entry only
    return isinstance(error, OSError) and error.errno in _ENDING_ERRNOS


def plan_sync(
    sources: Iterable[SyncStore],
    target: SyncStore,
    *,
    where: Predicate | None = None,
    pins: bool = False,
    headers: bool = True,
) -> SyncPlan:
    """Plan to copy the entries that ``target`` lacks, each from the first of ``sources`` that has an intact one.

    An entry that the target has is not copied, unless the target is a directory that would not serve it: because its
    header is damaged, or its signature untrusted. ``where`` limits the entries, and ``pins`` pins those that
    are pinned in their source. Without ``headers``, headers of a remote source are not read for the plan, and its
    records have no kind and no name; ``where`` needs headers.

    Raises:
        OSError: a directory of entries cannot be read.
        RemoteError: a remote cannot be listed.
        SettingsError: signatures have to be verified and ``cryptography`` is not installed.
    """
    stores = tuple(sources)
    places_of: dict[str, list[tuple[SyncStore, EntryStat]]] = {}
    for source in stores:
        for stored in source.scan():
            places_of.setdefault(stored.digest, []).append((source, stored))
    listed = {stored.digest for stored in target.scan()}
    pinned = {source.location: source.pins() for source in stores}

    def inspect(digest: str) -> tuple[bool, list[tuple[SyncStore, Record]], list[RefusedEntry]]:
        is_present, places = digest in listed and _is_kept(target, digest), places_of[digest]
        if is_present and where is None:  # then only pins matter
            places = [(source, stored) for source, stored in places if digest in pinned[source.location]]
        return is_present, *_read_headers(digest, places, target, pinned, headers=headers or where is not None)

    jobs = 1 if all(isinstance(store, DiskStore) for store in stores) else REMOTE_THREADS
    items: list[TransferItem] = []
    all_refused: list[RefusedEntry] = []
    to_pin, present = set[str](), 0
    for digest, (is_present, records, refused) in sorted(map_in_threads(inspect, places_of, jobs)):
        selected = [(source, record) for source, record in records if where is None or where(record)]
        if pins and any(record.pinned for _, record in selected):
            to_pin.add(digest)
        if is_present:
            present += bool(selected) or where is None
        elif selected:
            items.append(TransferItem(selected[0][1], tuple(source for source, _ in selected)))
        elif not records:
            all_refused += refused
    return SyncPlan(target, tuple(items), present, tuple(all_refused), frozenset(to_pin))


def _read_headers(
    digest: str,
    places: list[tuple[SyncStore, EntryStat]],
    target: SyncStore,
    pinned: Mapping[str, frozenset[str]],
    *,
    headers: bool,
) -> tuple[list[tuple[SyncStore, Record]], list[RefusedEntry]]:
    records: list[tuple[SyncStore, Record]] = []
    refused: list[RefusedEntry] = []
    for source, stored in places:
        is_pinned = digest in pinned[source.location]
        if not headers and not isinstance(source, DiskStore):
            records.append((source, Record.of_listing(stored, pinned=is_pinned)))
            continue
        try:
            with _open_entry(digest, source, target) as file:
                records.append((source, Record.of(file.header, stored, pinned=is_pinned)))
        except FileNotFoundError:
            continue  # removed since the scan
        except (OSError, StoreError) as error:
            if _ends_transfer(error):
                raise
            refused.append(_refusal(digest, source, error))
    return records, refused


def _is_kept(target: SyncStore, digest: str) -> bool:
    """Return whether the entry that the target lists stays: False for a damaged or untrusted one in a directory."""
    if not isinstance(target, DiskStore):
        return True
    try:
        with target.open_entry(digest, target.admission.admit(target.address(digest))):
            return True
    except FormatVersionError:
        return True
    except (OSError, StoreError):
        return False


def _open_entry(
    digest: str, source: SyncStore, target: SyncStore
) -> AbstractContextManager[ArtifactFile | IncomingFile]:
    """Open an entry that both its source and the target would use.

    In a shared store any member of a group can write entries. To be copied they need a trusted signature, unless the
    target is also a shared store that requires none: a private store would trust them from then on.
    """
    source_admission, target_admission, path = source.admission, target.admission, source.address(digest)
    if source.shared and not source_admission.required and not (target.shared and not target_admission.required):
        source_admission = replace(source_admission, required=True)
    rules = [rule for rule in (source_admission.admit(path), target_admission.admit(path)) if rule is not None]

    def admit(version: int, header: bytes, block: bytes) -> None:
        for rule in rules:
            rule(version, header, block)

    return source.open_entry(digest, admit)


def _refusal(digest: str, source: SyncStore, error: OSError | StoreError) -> RefusedEntry:
    root = source.location
    if isinstance(error, UntrustedEntryError):
        return RefusedEntry(digest, root, f"untrusted:{error.reason}", error.signer)
    if isinstance(error, CorruptBlobError):
        return RefusedEntry(digest, root, f"corrupt:{error.reason}", error.why)
    if isinstance(error, FormatVersionError):
        return RefusedEntry(digest, root, "format", f"format {error.found}; upgrade trtcache")
    if isinstance(error, RemoteError):
        return RefusedEntry(digest, root, f"remote:{error.reason}", error.why)
    why = error.strerror if isinstance(error, OSError) else None
    return RefusedEntry(digest, root, "unreadable", why or str(error))
