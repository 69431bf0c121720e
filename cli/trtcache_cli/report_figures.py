"""The figures of ``trtcache report``: what a store or a remote has, what it saved, and what an eviction would free."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_size
from trtcache.store.catalog import PrunePlan, counters, load_records, plan_prune
from trtcache.store.contract import is_companion
from trtcache_cli.kind_sums import Sums, sum_entries, sums_as_json
from trtcache_cli.output import spinner
from trtcache_cli.places import open_remote
from trtcache_cli.report_history import History, LookUp, history, look_ups
from trtcache_cli.report_matrix import HeatMap, heat_document
from trtcache_cli.stats import Stats, summarise

if TYPE_CHECKING:
    from trtcache.config.environment import Config
    from trtcache.config.remotes import RemoteUrl
    from trtcache.store.disk import DiskStore
    from trtcache.store.record import Record

UNNAMED: Final = "(no name)"
UNTARGETED: Final = "(none in its key)"
"""Target of a kind whose keys do not have one."""

LISTED: Final = 10
"""Entries in the lists of the slowest builds and of the unused ones."""

UNUSED_GRACE_NS: Final = 60 * 10**9
"""An entry counts as unused if its last use is at most a minute after its build: storing it sets that time, too."""

_DAY_NS = 86400 * 10**9
_AGES: Final = (
    ("under a day", 1),
    ("1 to 7 days", 7),
    ("7 to 30 days", 30),
    ("30 to 90 days", 90),
    ("over 90 days", 0),
)


@frozen_dataclass
class Option:
    """What one call of ``trtcache prune`` would remove."""

    arguments: str
    plan: PrunePlan

    @property
    def lost_s(self) -> float:
        """Build seconds of the entries that it would remove."""
        return sum(eviction.record.build_s for eviction in self.plan.evict)


@frozen_dataclass
class Figures:
    """The figures of one place.

    Attributes:
        place: the directory, or the URL.
        source: the cache directory whose events are counted.
        is_remote: whether the place is a remote, whose times of use are those of the upload.
        now_ns: when it was read.
        records: all entries, companions of engines too.
        stats: totals of the place's entries and of the events.
        found: the look-ups.
        options: what could be evicted.
        unreadable: entries whose header cannot be read.
        untrusted: entries of a remote that no trusted key signed; they are in the figures.
        heat: the matrix, if one was given.
    """

    place: str
    source: str
    is_remote: bool
    now_ns: int
    records: list[Record]
    stats: Stats
    found: list[LookUp]
    options: list[Option]
    unreadable: int = 0
    untrusted: int = 0
    heat: HeatMap | None = None
    engines: list[Record] = field(init=False)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        """Select the engines, and sum the look-ups up by day or week."""
        engines = [record for record in self.records if not is_companion(record.kind)]
        object.__setattr__(self, "engines", engines)
        object.__setattr__(self, "history", history(self.found, self.written.date()))

    @property
    def written(self) -> datetime:
        """When the place was read, in UTC."""
        return datetime.fromtimestamp(self.now_ns / 1e9, UTC)

    @property
    def hits(self) -> int:
        """Look-ups with an entry."""
        return sum(each.count for each in self.found if not each.reason)

    @property
    def misses(self) -> Counter[str]:
        """Look-ups without one, by reason."""
        misses: Counter[str] = Counter()
        for each in self.found:
            if each.reason:
                misses[each.reason] += each.count
        return misses

    @property
    def hit_rate(self) -> float | None:
        """Hits per look-up, or None before the first."""
        total = self.hits + self.misses.total()
        return self.hits / total if total else None

    @property
    def saved_s(self) -> float:
        """Build time that hits saved."""
        return sum(each.saved_s for each in self.found)

    @property
    def saved_by_kind(self) -> dict[str, float]:
        """Build seconds saved by the hits of each kind."""
        saved: dict[str, float] = {}
        for each in self.found:
            saved[each.kind] = saved.get(each.kind, 0.0) + each.saved_s
        return saved

    @property
    def build_s(self) -> float:
        """Build time of the engines that are there."""
        return sum(record.build_s for record in self.engines)

    @property
    def kinds(self) -> Sums:
        """Entries of each kind."""
        return self.stats.kinds

    @property
    def hidden(self) -> int:
        """Key aliases and other companions of engines, which ``trtcache ls`` lists with ``--all`` only."""
        return len(self.records) - len(self.engines)

    @property
    def models(self) -> Sums:
        """Entries of each model, by its name."""
        return sum_entries(self.records, lambda record: record.name or UNNAMED)

    @property
    def target_sums(self) -> Sums:
        """Engines for each target."""
        return sum_entries(self.engines, lambda record: record.target or UNTARGETED)

    @property
    def ages(self) -> Sums:
        """Entries by the time since their last use; for a remote, since their upload."""
        found = sum_entries(self.records, lambda record: _age(self.now_ns - record.used_ns))
        return {label: found.get(label, (0, 0)) for label, _ in _AGES}

    @property
    def slowest(self) -> list[Record]:
        """The engines that took longest to build."""
        return sorted(self.engines, key=lambda record: (-record.build_s, record.digest))[:LISTED]

    @property
    def unused(self) -> list[Record] | None:
        """Engines without a use since their build, largest first; None for a remote, which does not record reads."""
        if self.is_remote:
            return None
        found = [record for record in self.engines if record.used_ns - record.created_ns <= UNUSED_GRACE_NS]
        return sorted(found, key=lambda record: (-record.file_bytes, record.digest))


def read_store(store: DiskStore, config: Config, now_ns: int) -> Figures:
    """Read a store."""
    records, counts = load_records(store), counters(store)
    stats, found = summarise(records, counts), list(look_ups(counts))
    place, options = str(store.root), _options(records, now_ns, config)
    return Figures(place, place, False, now_ns, records, stats, found, options)


def read_remote(store: DiskStore, config: Config, url: RemoteUrl, now_ns: int) -> Figures:
    """Read the first 64 KiB of each entry of a remote, and what the events of a store say about it."""
    remote = open_remote(config, url)
    with spinner("reading headers"):
        records, verdicts, unreadable = remote.records(headers=True)
    untrusted = sum(verdict.reason is not None for verdict in verdicts.values()) if remote.admission.required else 0
    counts = counters(store)
    stats, found = summarise(records, counts), list(look_ups(counts, url.label))
    source, options = str(store.root), _options(records, now_ns, None)
    return Figures(url.text, source, True, now_ns, records, stats, found, options, len(unreadable), untrusted)


def _options(records: list[Record], now_ns: int, config: Config | None) -> list[Option]:
    """Return what some calls of ``trtcache prune`` would remove; without options those of the settings."""
    found = []
    if config is not None and (config.max_size_bytes is not None or config.max_entries is not None):
        plan = plan_prune(records, now_ns=now_ns, max_size_bytes=config.max_size_bytes, max_entries=config.max_entries)
        found.append(Option("", plan))
    for days in (90, 30, 7):
        plan = plan_prune(records, now_ns=now_ns, unused_for_s=days * 86400.0)
        found.append(Option(f"--unused-for {days}d", plan))
    total_bytes = sum(record.file_bytes for record in records)
    for part in (0.75, 0.5, 0.25) if total_bytes else ():
        limit = _round_size(total_bytes * part)
        plan = plan_prune(records, now_ns=now_ns, max_size_bytes=limit)
        found.append(Option(f"--max-size {format_size(limit).replace(' ', '')}", plan))
    return found


def _round_size(size_bytes: float) -> int:
    """Return a size that ``format_size`` prints without rounding."""
    whole = int(size_bytes)
    step: int = 10 ** max(0, len(str(whole)) - 3)
    return whole // step * step


def _age(idle_ns: int) -> str:
    for label, days in _AGES[:-1]:
        if idle_ns < days * _DAY_NS:
            return label
    return _AGES[-1][0]


def report_document(figures: Figures) -> dict[str, Any]:
    """Return the figures for ``--json``."""
    unused, periods = figures.unused, figures.history
    return {
        "place": figures.place,
        "events_of": figures.source,
        "written": figures.written.isoformat(timespec="seconds"),
        "entries": figures.stats.entries,
        "hidden": sums_as_json(figures.stats.hidden),
        "engines": len(figures.engines),
        "unreadable": figures.unreadable,
        "untrusted": figures.untrusted,
        "file_bytes": figures.stats.file_bytes,
        "size_bytes": figures.stats.size_bytes,
        "pinned": figures.stats.pinned,
        "build_s": figures.build_s,
        "hits": figures.hits,
        "misses": dict(figures.misses),
        "hit_rate": figures.hit_rate,
        "saved_s": figures.saved_s,
        "kinds": sums_as_json(figures.kinds),
        "models": sums_as_json(figures.models),
        "targets": sums_as_json(figures.target_sums),
        "unused_for": sums_as_json(figures.ages),
        "history": {
            "unit": periods.unit,
            "outside": periods.outside,
            "periods": [
                {
                    "first": period.first.isoformat(),
                    "last": period.last.isoformat(),
                    "hits": period.hits,
                    "misses": dict(period.misses),
                    "saved_s": period.saved_s,
                }
                for period in periods.periods
            ],
        },
        "prune": [
            {
                "arguments": option.arguments,
                "evict": len(option.plan.evict),
                "freed_bytes": option.plan.freed_bytes,
                "bytes_after": option.plan.bytes_after,
                "build_s": option.lost_s,
            }
            for option in figures.options
        ],
        "slowest": [record.as_json() for record in figures.slowest],
        "unused": None if unused is None else [record.as_json() for record in unused],
        "matrix": None if figures.heat is None else heat_document(figures.heat),
    }
