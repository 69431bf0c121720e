"""The zero point of a store's counters, which ``trtcache stats --zero`` sets.

Logs and sums are never reset: other hosts append to them, and a report shows their history. The zero point is a file
with the counters at a time, which are subtracted from later ones. So it stays exact when a log is reduced to sums.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from typing import TYPE_CHECKING

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import ReadOnlyError
from trtcache.store.catalog import counters, counters_since
from trtcache.store.events import MOST_BYTES, EventCount

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore
    from trtcache.store.events import Counters

_logger = logging.getLogger("trtcache.store")

NAME = "zero.json"


@frozen_dataclass
class ZeroPoint:
    """Counters at a time."""

    t_ns: int
    counters: Counters


def set_zero(store: DiskStore, *, now_ns: int) -> ZeroPoint:
    """Make ``stats`` count from now on, and return the zero point.

    Raises:
        ReadOnlyError: the store cannot be written.
        OSError: the zero point cannot be written; the earlier one stays.
    """
    if not store.writable:
        raise ReadOnlyError(str(store.root), "reset the counters")
    zero = ZeroPoint(now_ns, counters(store))
    rows = [[*key, total.count, total.sum_s] for key, total in zero.counters.items()]
    store.events.replace(NAME, json.dumps({"t": now_ns, "counts": rows}).encode("ascii"))
    return zero


def read_zero(store: DiskStore) -> ZeroPoint | None:
    """Return the zero point, or None without one. A damaged file is logged and counts for none."""
    path = store.events.directory / NAME
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        _logger.warning("%s cannot be read, and everything is counted: %s", path, error.strerror)
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
        return ZeroPoint(t_ns, counts)
    except (ArithmeticError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        _logger.warning("%s is damaged, and everything is counted: %s", path, error)
        return None


def counters_from_zero(store: DiskStore, since_ns: int | None = None) -> tuple[Counters, int | None]:
    """Return the counters since the zero point, and its time or None; ``since_ns`` is a later start."""
    zero = read_zero(store)
    if zero is None:
        return (counters(store) if since_ns is None else counters_since(store, since_ns)), None
    found = _subtract(counters(store), zero.counters)
    if since_ns is not None and since_ns > zero.t_ns:
        # Of sums, whole days are counted, which may begin before the zero point.
        later = counters_since(store, since_ns)
        found = {key: min(total, found[key], key=_count) for key, total in later.items() if key in found}
    return found, zero.t_ns


def _count(total: EventCount) -> int:
    return total.count


def _subtract(counts: Counters, earlier: Counters) -> Counters:
    """Return what was counted after ``earlier``; nothing is less than zero, also if logs were lost."""
    found = {}
    for key, total in counts.items():
        before = earlier.get(key, EventCount())
        if total.count > before.count:
            found[key] = EventCount(total.count - before.count, max(0.0, total.sum_s - before.sum_s))
    return found
