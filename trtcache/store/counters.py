"""Counts of hits, misses and the rest, summed from the event logs by day, event, reason and kind.

The logs, and the sums of those that are gone, are the truth. The index holds sums of them, so counting goes on while it
is lost or locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from trtcache.store.events import read_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trtcache.store.event_totals import LogTotals
    from trtcache.store.events import Event

Counters: TypeAlias = "dict[tuple[str, str, str, str], EventCount]"
"""(day in UTC, event, reason or "", kind or "") -> how often."""


@dataclass(frozen=True, slots=True)
class EventCount:
    """How often something happened, and its seconds: of hits those of building that they saved, of waits their own."""

    count: int = 0
    sum_s: float = 0.0

    def plus(self, sum_s: float, count: int = 1) -> EventCount:
        """Return the total with one more, or with so many, of so many seconds."""
        return EventCount(self.count + count, self.sum_s + sum_s)


def tails(
    logs: Iterable[Path], offsets: Mapping[str, int], sums: Iterable[LogTotals] = ()
) -> tuple[Counters, dict[str, int]] | None:
    """Return what event logs hold beyond ``offsets`` (by file name), and the offsets that lie behind it.

    A log shorter than its offset was replaced and is counted from its beginning. None if a log was counted in part and
    only its sum is left: then all has to be counted anew.

    Raises:
        OSError: a log cannot be read.
    """
    counters: Counters = {}
    reached: dict[str, int] = {}
    for summed in sums:
        offset_bytes = offsets.get(summed.log, 0)
        if 0 < offset_bytes < summed.size_bytes:
            return None
        reached[summed.log] = summed.size_bytes
        if not offset_bytes:
            add(summed.counters, counters)
    for log in logs:
        if log.name not in reached:
            events, reached[log.name] = _tail(log, offsets.get(log.name, 0))
            count(events, counters)
    return counters, reached


def _tail(log: Path, offset_bytes: int) -> tuple[list[Event], int]:
    try:
        if log.lstat().st_size < offset_bytes:
            offset_bytes = 0
        return read_from(log, offset_bytes)
    except FileNotFoundError:
        return [], offset_bytes  # summed and removed since the logs were listed; its sum is there the next time


def since(logs: Iterable[Path], sums: Iterable[LogTotals], since_ns: int) -> Counters:
    """Return what happened from a time on; of what is only summed the whole day of that time counts.

    Raises:
        OSError: a log cannot be read.
    """
    counters: Counters = {}
    gone, first = set[str](), day_of(since_ns)
    for summed in sums:
        gone.add(summed.log)
        add({key: total for key, total in summed.counters.items() if key[0] >= first}, counters)
    for log in logs:
        if log.name not in gone:
            count((event for event in _tail(log, 0)[0] if event.t_ns >= since_ns), counters)
    return counters


def count(events: Iterable[Event], counters: Counters) -> None:
    """Count events."""
    for event in events:
        key = (day_of(event.t_ns), event.event, event.reason, event.kind)
        counters[key] = counters.get(key, EventCount()).plus(event.saved_s + event.waited_s)


def add(more: Counters, counters: Counters) -> None:
    """Add counts to others."""
    for key, total in more.items():
        counters[key] = counters.get(key, EventCount()).plus(total.sum_s, total.count)


def day_of(t_ns: int) -> str:
    """Return the day in UTC of a time, empty for one that is far off."""
    try:
        return datetime.fromtimestamp(t_ns / 1e9, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""  # a clock or a line that is far off: counted, on no day
