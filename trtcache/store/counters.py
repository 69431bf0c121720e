"""Counts of hits, misses and the rest, summed from the event logs by day, event, reason and kind.

The logs are the truth and the index holds sums of them, so counting goes on while the index is lost or locked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from trtcache.store.events import read_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trtcache.store.events import Event

Counters: TypeAlias = "dict[tuple[str, str, str, str], Tally]"
"""(day in UTC, event, reason or "", kind or "") -> how often."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How often something happened, and the seconds of building that it saved."""

    count: int = 0
    saved_s: float = 0.0

    def plus(self, saved_s: float) -> Tally:
        """Return the tally with one more that saved so much."""
        return Tally(self.count + 1, self.saved_s + saved_s)


def tails(logs: Iterable[Path], offsets: Mapping[str, int]) -> tuple[Counters, dict[str, int]]:
    """Return what event logs hold beyond ``offsets`` (by file name), and the offsets that lie behind it.

    A log shorter than its offset was replaced and is counted from its beginning.

    Raises:
        OSError: a log cannot be read.
    """
    counters: Counters = {}
    reached: dict[str, int] = {}
    for log in logs:
        offset_bytes = offsets.get(log.name, 0)
        if log.lstat().st_size < offset_bytes:
            offset_bytes = 0
        events, reached[log.name] = read_from(log, offset_bytes)
        _count(events, counters)
    return counters, reached


def _count(events: Iterable[Event], counters: Counters) -> None:
    for event in events:
        key = (_day(event.t_ns), event.event, event.reason, event.kind)
        counters[key] = counters.get(key, Tally()).plus(event.saved_s)


def _day(t_ns: int) -> str:
    try:
        return datetime.fromtimestamp(t_ns / 1e9, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""  # a clock or a line that is far off: counted, on no day
