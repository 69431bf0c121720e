"""Catalog of a store's entries, garbage collection, and the zero point of a store's counters.

The directory is authoritative; the index saves opening file headers. A file without a row is read and gets one, a row
without a file is removed, and the row of a replaced file is rewritten. Losing the index costs one slow listing.

``trtcache stats --zero`` resets no log and no sum: other hosts append to them, and a report shows their history. It
writes the counters at that time, the zero point, to a file, and they are subtracted from later ones. The difference
stays exact when a log is reduced to sums.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import (
    CorruptBlobError,
    FormatVersionError,
    LockTimeoutError,
    StoreError,
    UnknownKeyError,
)
from trtcache.store.contract import is_companion
from trtcache.store.events import MOST_BYTES, Counters, EventCount, read_sums, since, tails
from trtcache.store.record import COLUMNS, INDEX_NAME, Predicate, Record, read_rows

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore
    from trtcache.store.reader import EntryStat

_LOG = logging.getLogger("trtcache.store")


HALF_LIFE_S = 7 * 86400.0
"""Idle time after which an entry is worth half."""

_COMPANIONS_EACH = 8
"""How many entries may accompany each engine under a limit of entries: key aliases, manifests, TensorRT's caches."""

LOW_WATER = 0.9
"""Fraction of the limit that a prune after a put goes down to, so that not every put has to prune."""


@frozen_dataclass
class Eviction:
    """One entry to remove, and the rule that selected it."""

    record: Record
    reason: str


@frozen_dataclass
class PrunePlan:
    """Entries that a prune would remove and keep. Nothing has been removed yet."""

    evict: tuple[Eviction, ...]
    kept: tuple[Record, ...]

    @property
    def freed_bytes(self) -> int:
        """Bytes that the plan frees on disk."""
        return sum(eviction.record.file_bytes for eviction in self.evict)

    @property
    def bytes_after(self) -> int:
        """Size on disk of the kept entries."""
        return sum(record.file_bytes for record in self.kept)

    @property
    def bytes_before(self) -> int:
        """Size on disk of all entries."""
        return self.freed_bytes + self.bytes_after

    def without(self, spared: Collection[str]) -> PrunePlan:
        """Return the plan in which these entries, by their digests, are kept."""
        records = [*self.kept, *(one.record for one in self.evict if one.record.digest in spared)]
        return PrunePlan(tuple(one for one in self.evict if one.record.digest not in spared), tuple(records))

    def execute(self, store: DiskStore) -> int:
        """Remove the planned entries and return the bytes freed. An entry that was pinned after planning is kept.

        Index rows are removed first: a crash in between leaves files without rows, which the next listing restores, and
        never a row without its file.

        Raises:
            OSError: a file cannot be removed; all others are gone.
        """
        return remove(store, self.evict)


def remove(store: DiskStore, evictions: Collection[Eviction], *, forced: bool = False) -> int:
    """Remove entries, index rows first, count each as evicted, and return the bytes freed.

    Unless it is ``forced``, an entry that is pinned by then is kept.

    Raises:
        OSError: a file cannot be removed; all others are gone.
    """
    if not evictions:
        return 0
    drop_rows(store, [eviction.record.digest for eviction in evictions])
    freed_bytes, failure = 0, None
    for eviction in evictions:
        record = eviction.record
        if not forced and store.is_pinned(record.digest):
            continue
        try:
            removed_bytes = store.remove(record.digest)
        except OSError as error:  # such as a folder that another member of a shared store has closed
            failure = error
            continue
        if removed_bytes:
            store.events.append("evict", reason=eviction.reason, kind=record.kind, key=record.digest)
        freed_bytes += removed_bytes
    if failure is not None:
        raise failure
    return freed_bytes


def drop_rows(store: DiskStore, digests: Iterable[str]) -> None:
    """Remove the index rows of entries that are about to be removed.

    An index that cannot be written does not stop the removal: on a full disk the files are the space to free, and the
    next listing drops rows without files.
    """
    from trtcache.store.index import write_rows

    try:
        write_rows(store.index_root, drop=digests)
    except StoreError as error:
        _LOG.warning("%s", error)


def worth(record: Record, *, now_ns: int) -> float:
    """Return the build seconds that a byte of this entry saves, discounted by idle time.

    ``build_s / file_bytes * 2 ** (-idle / half-life)``. The first factor is the time a byte saves on the next hit, the
    second the likelihood of that hit: an entry not used for a week counts half, for a month a sixteenth. So a 42 s
    engine of 400 MB is evicted before a 42 s engine of 2 MB, and an old one before a fresh one. Negative idle times,
    after a clock was set back, count as zero.
    """
    idle_s = max(0.0, (now_ns - record.used_ns) / 1e9)
    return float(record.build_s / max(1, record.file_bytes) * 2.0 ** (-idle_s / HALF_LIFE_S))


def plan_prune(
    records: Iterable[Record],
    *,
    now_ns: int,
    max_size_bytes: int | None = None,
    max_entries: int | None = None,
    max_companions: int | None = None,
    older_than_s: float | None = None,
    unused_for_s: float | None = None,
    stale: Mapping[str, str] | None = None,
    where: Predicate | None = None,
    keep: Collection[str] = (),
    oldest_first: bool = False,
) -> PrunePlan:
    """Select which of ``records`` to evict.

    Only entries that ``where`` accepts may be evicted; without a limit, all of them are. Entries of ``stale`` (a reason
    for each digest), those built longer ago than ``older_than_s`` and those not used for ``unused_for_s`` are evicted
    first; then, while the rest is larger than ``max_size_bytes`` or more than ``max_entries``, the entry with the
    lowest :func:`worth`, or with ``oldest_first`` the one that was used first. ``max_entries`` does not count what
    accompanies engines, such as key aliases, of which at most ``max_companions`` stay, by default eight times as many.
    Pinned entries and the digests in ``keep`` always stay, even if the rest then exceeds a limit.
    """
    everything = tuple(records)
    candidates = [
        record
        for record in everything
        if not record.pinned and record.digest not in keep and (where is None or where(record))
    ]
    limits = (max_size_bytes, max_entries, older_than_s, unused_for_s, stale)
    if where is not None and all(limit is None for limit in limits):
        return _plan(everything, [Eviction(record, "filter") for record in candidates])
    stale = stale or {}
    evict = [Eviction(record, stale[record.digest]) for record in candidates if record.digest in stale]
    for record in candidates:
        if record.digest in stale:
            continue
        if older_than_s is not None and now_ns - record.created_ns > older_than_s * 1e9:
            evict.append(Eviction(record, "older-than"))
        elif unused_for_s is not None and now_ns - record.used_ns > unused_for_s * 1e9:
            evict.append(Eviction(record, "unused-for"))
    gone = {eviction.record.digest for eviction in evict}
    left = [record for record in everything if record.digest not in gone]

    def order(record: Record) -> tuple[float, int, str]:
        return 0.0 if oldest_first else worth(record, now_ns=now_ns), record.used_ns, record.digest

    rest = sorted((record for record in candidates if record.digest not in gone), key=order)
    if max_entries is not None and max_companions is None:
        max_companions = _COMPANIONS_EACH * max_entries
    evict += _evict_to_limits(left, rest, max_size_bytes, max_entries, max_companions)
    return _plan(everything, evict)


def _evict_to_limits(
    left: list[Record],
    rest: list[Record],
    max_size_bytes: int | None,
    max_entries: int | None,
    max_companions: int | None,
) -> Iterator[Eviction]:
    """Yield those of ``rest``, in its order, that exceed the limits of all that is left."""
    counts = Counter(is_companion(record.kind) for record in left)
    excess_bytes = 0 if max_size_bytes is None else sum(record.file_bytes for record in left) - max_size_bytes
    excess_engines = 0 if max_entries is None else counts[False] - max_entries
    excess_companions = 0 if max_companions is None else counts[True] - max_companions
    for record in rest:
        accompanies = is_companion(record.kind)
        if excess_bytes > 0 or (excess_companions if accompanies else excess_engines) > 0:
            yield Eviction(record, "max-size" if excess_bytes > 0 else "max-entries")
            excess_bytes -= record.file_bytes
            excess_companions -= accompanies
            excess_engines -= not accompanies


def _plan(everything: tuple[Record, ...], evict: list[Eviction]) -> PrunePlan:
    gone = {eviction.record.digest for eviction in evict}
    return PrunePlan(tuple(evict), tuple(record for record in everything if record.digest not in gone))


def prune_after_put(
    store: DiskStore, max_size_bytes: int | None, max_entries: int | None, *, keep: Collection[str] = ()
) -> int:
    """Prune to 90 % of a limit if the store exceeds it, and return the bytes freed.

    Without a limit this costs nothing; below it, one scan of the directory, without importing SQLAlchemy. ``keep``
    lists new entries, which would otherwise be rebuilt at once. Only one process prunes at a time: the others return 0.

    Raises:
        OSError: files cannot be removed, nor others in their place.
    """
    if max_size_bytes is None and max_entries is None:
        return 0
    found = {stored.digest: stored.file_bytes for stored in store.scan()}
    large = max_size_bytes is not None and sum(found.values()) > max_size_bytes
    max_companions = None if max_entries is None else _COMPANIONS_EACH * max_entries
    many = many_companions = False
    if max_entries is not None and len(found) > max_entries:
        kinds = {digest: row[_KIND] for digest, row in (read_rows(store.index_root / INDEX_NAME) or {}).items()}
        counts = Counter(is_companion(str(kinds.get(digest, ""))) for digest in found)
        many, many_companions = counts[False] > max_entries, counts[True] > max_entries * _COMPANIONS_EACH
    if not large and not many and not many_companions:
        return 0

    def low_water(limit: int | None, is_exceeded: bool) -> int | None:
        return int(limit * LOW_WATER) if limit is not None and is_exceeded else limit

    try:
        with store.housekeeping():
            records = load_records(store)
            plan_rest = partial(
                plan_prune,
                now_ns=time.time_ns(),
                max_size_bytes=low_water(max_size_bytes, large),
                max_entries=low_water(max_entries, many),
                max_companions=low_water(max_companions, many_companions),
            )
            plan = plan_rest(records, keep=keep)
            try:
                return plan.execute(store)
            except OSError as error:
                _LOG.warning("%s; other entries are evicted in its place", error)
            stuck = [one.record for one in plan.evict if store.contains(one.record.digest)]
            freed_bytes = plan.freed_bytes - sum(record.file_bytes for record in stuck)
            plan = plan_rest([*plan.kept, *stuck], keep={*keep, *(record.digest for record in stuck)})
            return freed_bytes + plan.execute(store)
    except LockTimeoutError:
        return 0


_FILE_BYTES, _INODE, _KIND = (COLUMNS.index(name) for name in ("file_bytes", "inode", "kind"))


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
    records = [  # a row has the fields of a record in order, but for the target; the last use is the file's
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


_ZERO_NAME = "zero.json"


def set_zero(store: DiskStore, *, now_ns: int) -> None:
    """Make ``stats`` count from now on.

    Raises:
        OSError: the zero point cannot be written; the earlier one stays.
    """
    rows = [[*key, total.count, total.sum_s] for key, total in counters(store).items()]
    store.events.replace(_ZERO_NAME, json.dumps({"t": now_ns, "counts": rows}).encode("ascii"))


def read_zero(store: DiskStore) -> tuple[Counters, int] | None:
    """Return the counters at the zero point, and its time; None without one. A damaged file is logged and ignored."""
    path = store.events.directory / _ZERO_NAME
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        _LOG.warning("%s cannot be read, and everything is counted: %s", path, error.strerror)
        return None
    try:
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            whole = stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES
            document = json.loads(file.read(MOST_BYTES) if whole else b"")
        counts = {
            (str(day), str(event), str(reason), str(kind)): EventCount(int(count), float(sum_s))
            for day, event, reason, kind, count, sum_s in document["counts"]
        }
        t_ns = int(document["t"])
        if not 0 <= t_ns < 1 << 63:
            raise ValueError(f"{t_ns} is not a time")  # noqa: TRY301  # handled as any other damage
    except (ArithmeticError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        _LOG.warning("%s is damaged, and everything is counted: %s", path, error)
        return None
    return counts, t_ns


def counters_from_zero(store: DiskStore, since_ns: int | None = None) -> tuple[Counters, int | None]:
    """Return the counters since the zero point, and its time or None; ``since_ns`` is a later start."""
    zero = read_zero(store)
    if zero is None:
        return (counters(store) if since_ns is None else counters_since(store, since_ns)), None
    earlier, zero_ns = zero
    found = {}
    for key, total in counters(store).items():
        before = earlier.get(key, EventCount())
        if total.count > before.count:  # nothing is less than zero, also if logs were lost
            found[key] = EventCount(total.count - before.count, max(0.0, total.sum_s - before.sum_s))
    if since_ns is not None and since_ns > zero_ns:
        # Of sums, whole days are counted, which may begin before the zero point.
        later = counters_since(store, since_ns)
        found = {key: min(total, found[key], key=lambda one: one.count) for key, total in later.items() if key in found}
    return found, zero_ns
