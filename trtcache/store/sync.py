"""Copy missing entries from other stores: plan the transfer, and execute it.

Entry files are self-describing, so a transfer copies each missing file. The sources are only read. Copies are verified
and renamed as in a put: after a kill only complete entries exist, and the next run continues with the rest. An entry's
file name is derived from the key in its header, and must match its name in the source.
"""

from __future__ import annotations

import errno
import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from trtcache.errors import CorruptBlobError, FormatVersionError, StoreError, UntrustedEntryError
from trtcache.store.format import check_document
from trtcache.store.gc import prune_after_put
from trtcache.store.index import write_rows
from trtcache.store.reader import ArtifactFile
from trtcache.store.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from trtcache.store.disk import DiskStore
    from trtcache.store.format import Admit
    from trtcache.store.reading import EntryStat
    from trtcache.store.record import Predicate

_LOG = logging.getLogger("trtcache.store")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}

BATCH: Final = 64
"""Entries after which rows are written and the limits are enforced. A listing adds rows that a kill left out."""

Advance: TypeAlias = "Callable[[int], None]"


@dataclass(frozen=True, slots=True)
class TransferItem:
    """An entry to be copied. The sources are tried in order."""

    record: Record
    sources: tuple[DiskStore, ...]


@dataclass(frozen=True, slots=True)
class RejectedEntry:
    """An entry that is not transferred. ``reason`` is as for a miss: ``corrupt:member``, ``untrusted:unsigned``."""

    digest: str
    root: str
    reason: str
    why: str


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Result of a transfer. ``pinned`` are the newly pinned keys, ``freed_bytes`` the bytes pruned for the limits."""

    arrived: tuple[Record, ...]
    refused: tuple[RejectedEntry, ...]
    pinned: tuple[str, ...]
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """A planned transfer. Nothing has been copied yet.

    ``there`` is the number of entries that the target already has, ``pins`` are the keys to pin in it.
    """

    target: DiskStore
    items: tuple[TransferItem, ...]
    there: int
    refused: tuple[RejectedEntry, ...]
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
        """Copy and pin the entries, and keep the target under its limits as a put would. Rejected entries are skipped.

        ``advance`` is called with the bytes of each finished entry.

        Raises:
            ReadOnlyError: the target cannot be written.
            OSError: it is full; copied entries stay, and the next run continues.
            StoreError: its entries cannot be listed.
        """
        arrived: list[Record] = []
        refused, freed_bytes = list(self.refused), 0
        for start in range(0, len(self.items), BATCH):
            batch: list[Record] = []
            try:
                for item in self.items[start : start + BATCH]:
                    found = self._transfer(item)
                    refused += found if isinstance(found, list) else []
                    batch += [found] if isinstance(found, Record) else []
                    advance(item.record.file_bytes)
            finally:
                if batch:
                    try:
                        write_rows(self.target.index_root, put=batch)
                    except StoreError as error:
                        _LOG.warning("%s", error)
            keep = [record.digest for record in batch]
            freed_bytes += prune_after_put(self.target, max_size_bytes, max_entries, keep=keep) if batch else 0
            arrived += batch
        # Pin what the target had before, too.
        missing = sorted(self.pins - {item.record.digest for item in self.items} - self.target.pins())
        for digest in missing:
            self.target.pin(digest)
        pinned = {*missing, *(record.digest for record in arrived if record.pinned)}
        if self.items:
            self.target.sweep()
        return SyncResult(tuple(arrived), tuple(refused), tuple(sorted(pinned)), freed_bytes)

    def _transfer(self, item: TransferItem) -> Record | list[RejectedEntry]:
        digest, refused = item.record.digest, []
        for source in item.sources:
            try:
                file = _open_entry(digest, source, self.target)
                try:
                    self.target.receive(file)
                finally:
                    file.close()
                if digest in self.pins:
                    self.target.pin(digest)
                self.target.events.append("copy", reason="sync", kind=file.header.kind, key=digest)
                return Record.of(file.header, self.target.stat(digest), pinned=digest in self.pins)
            except FileNotFoundError:
                continue  # removed since the plan was made
            except (OSError, StoreError) as error:
                if isinstance(error, OSError) and error.errno in _FULL:
                    raise
                refused.append(_rejection(digest, source, error))
        return refused


def plan_sync(
    sources: Iterable[DiskStore], target: DiskStore, *, where: Predicate | None = None, pins: bool = False
) -> SyncPlan:
    """Plan to copy the entries that ``target`` lacks, each from the first of ``sources`` that has an intact one.

    Entries of the target are kept, unless they could not be served: with a damaged header or untrusted signatures.
    ``where`` limits the entries, and ``pins`` pins those that are pinned in their source.

    Raises:
        OSError: a directory of entries cannot be read.
        SettingsError: signatures have to be verified and ``cryptography`` is not installed.
    """
    stores = tuple(sources)
    found: dict[str, list[tuple[DiskStore, EntryStat]]] = {}
    for source in stores:
        for stored in source.scan():
            found.setdefault(stored.digest, []).append((source, stored))
    pinned = {source.root: source.pins() for source in stores}
    items: list[TransferItem] = []
    rejected: list[RejectedEntry] = []
    to_pin, there = set[str](), 0
    for digest in sorted(found):
        is_there, places = _has(target, digest), found[digest]
        if is_there and where is None:  # then only pins matter
            places = [(source, stored) for source, stored in places if digest in pinned[source.root]]
        records, refused = _read_headers(digest, places, target, pinned)
        meant = [(source, record) for source, record in records if where is None or where(record)]
        if pins and any(record.pinned for _, record in meant):
            to_pin.add(digest)
        if is_there:
            there += bool(meant) or where is None
        elif meant:
            items.append(TransferItem(meant[0][1], tuple(source for source, _ in meant)))
        elif not records:
            rejected += refused
    return SyncPlan(target, tuple(items), there, tuple(rejected), frozenset(to_pin))


def _read_headers(
    digest: str, places: list[tuple[DiskStore, EntryStat]], target: DiskStore, pinned: Mapping[Path, frozenset[str]]
) -> tuple[list[tuple[DiskStore, Record]], list[RejectedEntry]]:
    records: list[tuple[DiskStore, Record]] = []
    refused: list[RejectedEntry] = []
    for source, stored in places:
        try:
            file = _open_entry(digest, source, target)
            file.close()
            records.append((source, Record.of(file.header, stored, pinned=digest in pinned[source.root])))
        except FileNotFoundError:
            continue  # removed since the scan
        except (OSError, StoreError) as error:
            refused.append(_rejection(digest, source, error))
    return records, refused


def _has(target: DiskStore, digest: str) -> bool:
    path = target.path(digest)
    try:
        file = ArtifactFile(path, shared=target.shared, admit=target.admission.admit(str(path)))
    except FormatVersionError:
        return True
    except (OSError, StoreError):
        return False
    file.close()
    return file.header.key.digest == digest


def _open_entry(digest: str, source: DiskStore, target: DiskStore) -> ArtifactFile:
    """Open an entry that is trusted in its source and in the target."""
    path = source.path(digest)
    file = ArtifactFile(path, shared=source.shared, admit=_admission(source, target, str(path)))
    with ExitStack() as stack:
        stack.callback(file.close)
        if file.header.key.digest != digest:
            raise CorruptBlobError(str(path), "key", f"it is the entry of key {file.header.key.digest!r:.80}")
        check_document(file.header, str(path))
        stack.pop_all()  # the caller closes it
    return file


def _admission(source: DiskStore, target: DiskStore, path: str) -> Admit:
    """Return a check that rejects an entry that one of the two stores would not use.

    Entries written by members of a group need a trusted signature unless the target is such a shared store too: a
    private store would trust them from then on.
    """
    theirs, ours = source.admission, target.admission
    if source.shared and not theirs.required and not (target.shared and not ours.required):
        theirs = replace(theirs, required=True)
    rules = [rule for rule in (theirs.admit(path), ours.admit(path)) if rule is not None]

    def admit(version: int, header: bytes, block: bytes) -> None:
        for rule in rules:
            rule(version, header, block)

    return admit


def _rejection(digest: str, source: DiskStore, error: OSError | StoreError) -> RejectedEntry:
    root = str(source.root)
    if isinstance(error, UntrustedEntryError):
        return RejectedEntry(digest, root, f"untrusted:{error.reason}", error.signer)
    if isinstance(error, CorruptBlobError):
        return RejectedEntry(digest, root, f"corrupt:{error.reason}", error.why)
    if isinstance(error, FormatVersionError):
        return RejectedEntry(digest, root, "format", f"format {error.found}; upgrade trtcache")
    why = error.strerror if isinstance(error, OSError) else None
    return RejectedEntry(digest, root, "unreadable", why or str(error))
