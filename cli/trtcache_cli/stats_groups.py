"""Entries, hits, misses and saved time of each name or kind, for ``trtcache stats``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from trtcache.config.units import format_duration, format_size
from trtcache_cli.output import on_terminal, print_table, print_tsv

if TYPE_CHECKING:
    from trtcache.store.events import Counters, Event
    from trtcache.store.record import Record

_HEADER = ("ENTRIES", "SIZE", "HITS", "MISSES", "SAVED")

OTHERS = "(others)"
"""Group of events whose entry was evicted, or which are no longer in the logs, so that their name is unknown."""


@dataclass(slots=True)
class Group:
    """Totals of a name or kind."""

    entries: int = 0
    file_bytes: int = 0
    hits: int = 0
    misses: int = 0
    saved_s: float = 0.0

    def count(self, event: str, count: int, sum_s: float) -> None:
        """Add hits or misses."""
        if event == "hit":
            self.hits, self.saved_s = self.hits + count, self.saved_s + sum_s
        elif event == "miss":
            self.misses += count


def groups_by(
    what: str, records: Iterable[Record], counts: Counters, events: Iterable[Event] = (), start_ns: int = 0
) -> dict[str, Group]:
    """Return the totals of each name or kind, largest first.

    Counters have kinds. Names are those of the entries that an event's key has now; what is left of the counters
    is in the group ``(others)``, so that a column always has the sum that ``trtcache stats`` prints.
    """
    groups: dict[str, Group] = {}
    names: dict[str, str] = {}
    for record in records:
        name = names[record.digest] = record.kind if what == "kind" else record.name or "-"
        group = groups.setdefault(name, Group())
        group.entries, group.file_bytes = group.entries + 1, group.file_bytes + record.file_bytes
    total = Group()
    for (_, event, _, kind), count in counts.items():
        total.count(event, count.count, count.sum_s)
        if what == "kind" and event in ("hit", "miss"):
            groups.setdefault(kind or "-", Group()).count(event, count.count, count.sum_s)
    if what == "name":
        for one in events:
            if one.t_ns >= start_ns and one.key in names:
                groups[names[one.key]].count(one.event, 1, one.saved_s)
        rest = Group(
            hits=max(0, total.hits - sum(group.hits for group in groups.values())),
            misses=max(0, total.misses - sum(group.misses for group in groups.values())),
            saved_s=max(0.0, total.saved_s - sum(group.saved_s for group in groups.values())),
        )
        if rest.hits or rest.misses:
            groups[OTHERS] = rest
    return dict(sorted(groups.items(), key=lambda item: (-item[1].file_bytes, item[0])))


def groups_as_json(groups: dict[str, Group]) -> dict[str, dict[str, object]]:
    """Convert groups for ``--json``."""
    return {name: asdict(group) for name, group in groups.items()}


def print_groups(what: str, groups: dict[str, Group]) -> None:
    """Print a row for each group; in a pipe with plain numbers."""
    if not on_terminal():
        print_tsv(
            (name, group.entries, group.file_bytes, group.hits, group.misses, f"{group.saved_s:.3f}")
            for name, group in groups.items()
        )
        return
    rows = [
        (
            name,
            f"{group.entries:,}",
            format_size(group.file_bytes),
            f"{group.hits:,}",
            f"{group.misses:,}",
            format_duration(group.saved_s),
        )
        for name, group in groups.items()
    ]
    print_table((what.upper(), *_HEADER), rows, right=_HEADER, flexible=what.upper())
