"""The entries of a store: its files joined with the index, each healing the other.

The directory decides which entries there are; the index saves opening their headers. A file without a row is read and
gets one, a row without a file goes, a row of a file that was replaced is made anew. So the loss of the index costs
one slow listing and nothing else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtcache.errors import CorruptBlobError, FormatVersionError, StoreError, UnknownKeyError
from trtcache.store.record import Record
from trtcache.store.rows import COLUMNS, INDEX_NAME, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trtcache.store.counters import Counters
    from trtcache.store.disk import DiskStore
    from trtcache.store.listing import EntryStat
    from trtcache.store.rows import Row

_LOG = logging.getLogger("trtcache.store")
_FILE_BYTES, _INODE = COLUMNS.index("file_bytes"), COLUMNS.index("inode")


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """Where files and rows disagree: files to read, and digests whose rows have no file."""

    unread: tuple[EntryStat, ...]
    fileless: tuple[str, ...]


def load_records(store: DiskStore) -> list[Record]:
    """Return every readable entry, newest use first, and put the index right where it was not.

    A file whose header is damaged is quarantined and counted, or only reported where the store is read-only. One of a
    newer format is left alone, and so is one that this user may not read, as another can leave it in a shared store.
    Trouble with the index is logged and costs time, never entries.

    Raises:
        OSError: the directory cannot be read.
    """
    pins = store.pins()
    files = {stored.digest: stored for stored in store.scan()}
    rows = read_rows(store.index_root / INDEX_NAME)
    diff = compare(files, rows or {})
    gone = set(diff.fileless) | {stored.digest for stored in diff.unread}
    records = [_record_from_row(row, files[digest], pins) for digest, row in (rows or {}).items() if digest not in gone]
    read = _read(store, diff.unread, pins)
    if store.writable and (rows is None or read or diff.fileless):
        _mend(store, read, diff.fileless, whole=rows is None)
    records += read
    records.sort(key=lambda record: (-record.used_ns, record.digest))
    return records


def compare(files: Mapping[str, EntryStat], rows: Mapping[str, Row]) -> CatalogDiff:
    """Return where files and rows disagree. Size and inode tell whether a row is of this very file."""
    unread = tuple(
        stored
        for digest, stored in files.items()
        if (row := rows.get(digest)) is None or row[_INODE] != stored.inode or row[_FILE_BYTES] != stored.file_bytes
    )
    return CatalogDiff(unread, tuple(digest for digest in rows if digest not in files))


def _record_from_row(row: Row, stored: EntryStat, pins: frozenset[str]) -> Record:
    digest, kind, name, file_bytes, size_bytes, created_ns, _used_ns, build_s, members, inode = row
    used_ns, pinned = stored.used_ns, digest in pins
    return Record(digest, kind, name, file_bytes, size_bytes, created_ns, used_ns, build_s, members, inode, pinned)


def _read(store: DiskStore, unread: Iterable[EntryStat], pins: frozenset[str]) -> list[Record]:
    records = []
    for stored in unread:
        try:
            header = store.header(stored.digest)
        except UnknownKeyError:
            continue  # removed since the scan
        except FormatVersionError as error:
            _LOG.warning("%s", error)
        except OSError as error:
            _LOG.warning("%s cannot be read: %s", store.path(stored.digest), error.strerror)
        except CorruptBlobError as error:
            _LOG.warning("%s", error)
            if store.writable:
                store.quarantine(stored.digest, error.reason)
        else:
            records.append(Record.of(header, stored, pinned=stored.digest in pins))
    return records


def _mend(store: DiskStore, put: Iterable[Record], drop: Iterable[str], *, whole: bool = False) -> None:
    """Write what differs. ``whole`` says that ``put`` is everything, and that the index could not be read."""
    from trtcache.store.index import rebuild_index, write_rows

    try:
        write_rows(store.index_root, put=put, drop=drop)
        if whole and read_rows(store.index_root / INDEX_NAME) is None:
            rebuild_index(store.index_root, put)  # it takes rows and gives back others: one of a wrong type, say
    except StoreError as error:
        _LOG.warning("%s", error)


def add(store: DiskStore, digest: str) -> None:
    """Give a new entry its row in the index.

    Raises:
        StoreError: the entry is gone or damaged, or the index cannot be written.
        OSError: it cannot be read.
    """
    from trtcache.store.index import write_rows

    record = Record.of(store.header(digest), store.stat(digest), pinned=digest in store.pins())
    write_rows(store.index_root, put=[record])


def refold(store: DiskStore, records: Iterable[Record]) -> None:
    """Write the times of last use of ``records`` into the index, so that they survive a copy of the files."""
    _mend(store, records, ())


def rebuild(store: DiskStore) -> list[Record]:
    """Make the index anew from the headers of all files, and return the records.

    Raises:
        IndexUnavailableError: it cannot be made.
        OSError: the directory cannot be read.
    """
    from trtcache.store.index import rebuild_index

    pins = store.pins()
    records = _read(store, store.scan(), pins)
    rebuild_index(store.index_root, records)
    return records


def counters(store: DiskStore) -> Counters:
    """Return all counts of the store, folding what the event logs gained into the index where it can be written.

    Raises:
        OSError: a log cannot be read.
    """
    from trtcache.store.counters import tails

    logs, sums = store.events.logs(), store.events.sums()
    if store.writable:
        from trtcache.store.index import on_index

        try:
            return on_index(store.index_root, lambda index: index.fold(lambda offsets: tails(logs, offsets, sums)))
        except StoreError as error:
            _LOG.warning("%s", error)
    found = tails(logs, {}, sums)
    return found[0] if found else {}


def counters_since(store: DiskStore, since_ns: int) -> Counters:
    """Return what happened in the store from a time on, from its logs alone.

    Raises:
        OSError: a log cannot be read.
    """
    from trtcache.store.counters import since

    return since(store.events.logs(), store.events.sums(), since_ns)
