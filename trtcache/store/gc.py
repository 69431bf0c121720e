"""Garbage collection: plan which entries to evict, and execute the plan."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import LockTimeoutError, StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from trtcache.store.disk import DiskStore
    from trtcache.store.record import Predicate, Record

_LOG = logging.getLogger("trtcache.store")

HALF_LIFE_S = 7 * 86400.0
"""Idle time after which an entry is worth half."""

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
    older_than_s: float | None = None,
    unused_for_s: float | None = None,
    stale: Mapping[str, str] | None = None,
    where: Predicate | None = None,
    keep: Collection[str] = (),
    oldest_first: bool = False,
) -> PrunePlan:
    """Select which of ``records`` to evict.

    ``where`` limits which entries may be evicted; given alone it selects all of those. Entries of ``stale`` (a reason
    for each digest), those built longer ago than ``older_than_s`` and those not used for ``unused_for_s`` are evicted
    first; then, while the rest is larger than ``max_size_bytes`` or more than ``max_entries``, the entry with the
    lowest :func:`worth`, or with ``oldest_first`` the one that was used first. Pinned entries and the digests in
    ``keep`` always stay, even if the rest then exceeds a limit.
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
    # The rest is evicted down to the limits, the least worth first.
    gone = {eviction.record.digest for eviction in evict}
    kept_bytes = sum(record.file_bytes for record in everything if record.digest not in gone)
    excess_bytes = 0 if max_size_bytes is None else kept_bytes - max_size_bytes
    excess = 0 if max_entries is None else len(everything) - len(evict) - max_entries
    rest = [record for record in candidates if record.digest not in gone]

    def order(entry: Record) -> tuple[float, int, str]:
        return 0.0 if oldest_first else worth(entry, now_ns=now_ns), entry.used_ns, entry.digest

    for record in sorted(rest, key=order):
        if excess_bytes <= 0 and excess <= 0:
            break
        evict.append(Eviction(record, "max-size" if excess_bytes > 0 else "max-entries"))
        excess_bytes, excess = excess_bytes - record.file_bytes, excess - 1
    return _plan(everything, evict)


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
    sizes_bytes = [stored.file_bytes for stored in store.scan()]
    large = max_size_bytes is not None and sum(sizes_bytes) > max_size_bytes
    many = max_entries is not None and len(sizes_bytes) > max_entries
    if not large and not many:
        return 0
    from trtcache.store.catalog import load_records

    try:
        with store.housekeeping():
            records = load_records(store)
            plan_rest = partial(
                plan_prune,
                now_ns=time.time_ns(),
                max_size_bytes=int(max_size_bytes * LOW_WATER) if max_size_bytes is not None and large else None,
                max_entries=int(max_entries * LOW_WATER) if max_entries is not None and many else None,
            )
            plan = plan_rest(records, keep=keep)
            try:
                return plan.execute(store)
            except OSError as error:
                _LOG.warning("%s; other entries are evicted in its place", error)
            stuck = [one.record for one in plan.evict if store.contains(one.record.digest)]
            plan = plan_rest([*plan.kept, *stuck], keep={*keep, *(record.digest for record in stuck)})
            return plan.execute(store)
    except LockTimeoutError:
        return 0
