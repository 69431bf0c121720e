"""Catalog of a store's entries: the directory listing reconciled with the index.

The directory is authoritative; the index saves opening file headers. A file without a row is read and gets one, a row
without a file is removed, and the row of a replaced file is rewritten. Losing the index costs one slow listing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trtcache.errors import CorruptBlobError, FormatVersionError, StoreError, UnknownKeyError
from trtcache.store.events import read_sums, since, tails
from trtcache.store.record import Record
from trtcache.store.rows import COLUMNS, INDEX_NAME, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.store.disk import DiskStore
    from trtcache.store.events import Counters
    from trtcache.store.reading import EntryStat

_LOG = logging.getLogger("trtcache.store")
_FILE_BYTES, _INODE = COLUMNS.index("file_bytes"), COLUMNS.index("inode")


def load_records(store: DiskStore) -> list[Record]:
    """Return every readable entry, most recently used first, and repair the index where it differs.

    A file with a damaged header is quarantined and counted, or only reported in a read-only store. Files of a newer
    format and files that this user may not read, which other members can leave in a shared store, are skipped. A
    failure of the index is logged and costs time, never entries.

    Raises:
        OSError: the directory cannot be read.
    """
    pins = store.pins()
    files = {stored.digest: stored for stored in store.scan()}
    rows = read_rows(store.index_root / INDEX_NAME)
    known = rows or {}
    unread = [
        stored  # size and inode identify the file that a row describes
        for digest, stored in files.items()
        if (row := known.get(digest)) is None or row[_INODE] != stored.inode or row[_FILE_BYTES] != stored.file_bytes
    ]
    fileless = [digest for digest in known if digest not in files]
    gone = {*fileless, *(stored.digest for stored in unread)}
    records = [
        Record(*row[:6], files[digest].used_ns, *row[8:], pinned=digest in pins, target=row[7])
        for digest, row in known.items()
        if digest not in gone
    ]
    read = _read(store, unread, pins)
    if store.writable and (rows is None or read or fileless):
        _mend(store, read, fileless, whole=rows is None)
    records += read
    records.sort(key=lambda record: (-record.used_ns, record.digest))
    return records


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
            store.quarantine_damage(stored.digest, error.reason, stored.inode)
        else:
            records.append(Record.of(header, stored, pinned=stored.digest in pins))
    return records


def _mend(store: DiskStore, put: Iterable[Record], drop: Iterable[str], *, whole: bool = False) -> None:
    """Write the changed rows. ``whole`` means that ``put`` is complete and the index was unreadable."""
    from trtcache.store.index import rebuild_index, write_rows

    try:
        write_rows(store.index_root, put=put, drop=drop)
        if whole and read_rows(store.index_root / INDEX_NAME) is None:
            rebuild_index(store.index_root, put)  # it is still not readable, such as for a row with a wrong type
    except StoreError as error:
        _LOG.warning("%s", error)


def add(store: DiskStore, digest: str) -> None:
    """Insert the index row of a new entry."""
    from trtcache.store.index import write_rows

    record = Record.of(store.header(digest), store.stat(digest), pinned=digest in store.pins())
    write_rows(store.index_root, put=[record])


def refold(store: DiskStore, records: Iterable[Record]) -> None:
    """Write the last-use times of ``records`` into the index; they then survive a copy of the files."""
    _mend(store, records, ())


def rebuild(store: DiskStore) -> list[Record]:
    """Rebuild the index from the headers of all files, and return the records."""
    from trtcache.store.index import rebuild_index

    pins = store.pins()
    records = _read(store, store.scan(), pins)
    rebuild_index(store.index_root, records)
    return records


def counters(store: DiskStore) -> Counters:
    """Return all counters of the store, and fold new event-log lines into the index if it is writable."""
    logs = store.events.logs()  # before the sums: a log could otherwise be missing from both
    sums = read_sums(store.events.directory)
    if store.writable:
        from trtcache.store.index import on_index

        try:
            return on_index(store.index_root, lambda index: index.fold(lambda offsets: tails(logs, offsets, sums)))
        except StoreError as error:
            _LOG.warning("%s", error)
    counted = tails(logs, {}, sums)
    return counted[0] if counted else {}


def counters_since(store: DiskStore, since_ns: int) -> Counters:
    """Count the events since a time, from the logs alone."""
    logs = store.events.logs()
    return since(logs, read_sums(store.events.directory), since_ns)
