"""Look-ups of a store or a remote by day or week, from the counters of its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.store.events import SAVED, Counters
from trtcache_cli.remote_stats import UNNAMED

LONGEST_DAYS: Final = 371
"""The days that a history shows at most: a year, in whole weeks."""

_MOST_DAYS_BY_DAY = 45


@frozen_dataclass
class LookUp:
    """Look-ups of one day with one result. ``reason`` is empty for hits."""

    day: str
    kind: str
    reason: str
    count: int
    saved_s: float


@dataclass(slots=True)
class Period:
    """The look-ups of a day, or of a week, from its first to its last day."""

    first: date
    last: date
    hits: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    saved_s: float = 0.0

    @property
    def look_ups(self) -> int:
        """Hits and misses."""
        return self.hits + self.misses.total()


@frozen_dataclass
class History:
    """Periods without gaps up to today, and the number of look-ups outside them.

    Attributes:
        unit: ``day`` or ``week``.
        periods: oldest first; empty if there was no look-up.
        outside: look-ups before the first period, after today, or without a valid day.
    """

    unit: str
    periods: list[Period]
    outside: int = 0


def look_ups(counts: Counters, url: str = "") -> Iterator[LookUp]:
    """Yield the look-ups of a store, or of the remote with this URL as this store saw them."""
    for (day, event, detail, kind), total in counts.items():
        reason = detail
        if url:
            event_url, _, reason = detail.partition(" ")
            if event_url != url or not event.startswith("remote_"):
                continue
            event = event.removeprefix("remote_")  # a remote's events have this prefix
        if event == "hit":
            # The seconds of a remote's hit are those of the request; what it saved is counted apart.
            yield LookUp(day, kind, "", total.count, 0.0 if url else total.sum_s)
        elif event == "hit" + SAVED and url:
            yield LookUp(day, kind, "", 0, total.sum_s)
        elif event == "miss":
            yield LookUp(day, kind, reason or UNNAMED, total.count, 0.0)


def history(found: Iterable[LookUp], today: date) -> History:
    """Sum look-ups up by day, or by week if they are of more than 45 days."""
    by_day: dict[date, Period] = {}
    outside = 0
    for each in found:
        day = _parse_day(each.day)
        if day is None or not timedelta(0) <= today - day < timedelta(LONGEST_DAYS):
            outside += each.count
            continue
        period = by_day.setdefault(day, Period(day, day))
        period.saved_s += each.saved_s
        if each.reason:
            period.misses[each.reason] += each.count
        else:
            period.hits += each.count
    if not by_day:
        return History("day", [], outside)
    first = min(by_day)
    days = 1 if (today - first).days < _MOST_DAYS_BY_DAY else 7
    if days == 7:
        first -= timedelta(first.weekday())
    periods = [
        Period(first + timedelta(begin), min(today, first + timedelta(begin + days - 1)))
        for begin in range(0, (today - first).days + 1, days)
    ]
    for day, day_counts in by_day.items():
        period = periods[(day - first).days // days]
        period.hits += day_counts.hits
        period.saved_s += day_counts.saved_s
        period.misses.update(day_counts.misses)
    return History("day" if days == 1 else "week", periods, outside)


def _parse_day(text: str) -> date | None:
    """Return a day; None for another text, which a member of a shared store can write."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
