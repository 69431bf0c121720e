"""``trtcache stats``: hits, misses, sizes and saved time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_duration, format_size, parse_since
from trtcache.store.catalog import counters, counters_from_zero, load_records, set_zero
from trtcache.store.contract import is_companion
from trtcache.store.layers import BELOW
from trtcache_cli.kind_sums import Sums, sum_entries, sums_as_json
from trtcache_cli.ls import rows_of
from trtcache_cli.output import hits_and_misses, note, print_json, print_pairs
from trtcache_cli.prometheus import exposition
from trtcache_cli.remote_stats import (
    UNNAMED,
    RemoteStats,
    add_breakers,
    add_times,
    remote_document,
    remote_pairs,
    sum_remotes,
)
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.stats_groups import groups_as_json, groups_by, print_groups

if TYPE_CHECKING:
    from trtcache.store.events import Counters
    from trtcache.store.record import Record


@frozen_dataclass
class Stats:
    """The displayed totals. ``entries`` are those that ``trtcache ls`` lists, ``hidden`` those of ``--all``.

    ``waiting_uploads`` are the entries in the outbox, and ``below`` those of lower layers.
    """

    entries: int
    pinned: int
    file_bytes: int
    size_bytes: int
    files: int = 0
    hidden: Sums = field(default_factory=dict)
    first_day: str = ""
    kinds: Sums = field(default_factory=dict)
    hits: int = 0
    saved_s: float = 0.0
    hits_below: int = 0
    puts: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    put_failures: Counter[str] = field(default_factory=Counter)
    evictions: Counter[str] = field(default_factory=Counter)
    quarantines: Counter[str] = field(default_factory=Counter)
    waits: int = 0
    waited_s: float = 0.0
    takeovers: int = 0
    failed_builds: Counter[str] = field(default_factory=Counter)
    cancelled_builds: int = 0
    remotes: dict[str, RemoteStats] = field(default_factory=dict)
    waiting_uploads: int = 0
    root: str = ""
    max_size_bytes: int | None = None
    max_entries: int | None = None
    below: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Hits per lookup, or None before the first lookup."""
        lookups = self.hits + self.misses.total()
        return self.hits / lookups if lookups else None

    @property
    def compression(self) -> float | None:
        """Uncompressed bytes per byte on disk, or None for an empty store."""
        return self.size_bytes / self.file_bytes if self.file_bytes else None

    @property
    def used(self) -> float | None:
        """Part of the size limit that is used, None without a limit."""
        return self.file_bytes / self.max_size_bytes if self.max_size_bytes else None


def summarise(records: Iterable[Record], counts: Counters) -> Stats:
    """Sum up entries and counters."""
    records = list(records)
    hits, waits = ([total for (_, event, _, _), total in counts.items() if event == one] for one in ("hit", "wait"))
    return Stats(
        entries=sum(not is_companion(record.kind) for record in records),
        files=len(records),
        hidden=sum_entries(record for record in records if is_companion(record.kind)),
        first_day=min((day for day, *_ in counts if day), default=""),
        pinned=sum(record.pinned for record in records),
        file_bytes=sum(record.file_bytes for record in records),
        size_bytes=sum(record.size_bytes for record in records),
        kinds=sum_entries(records),
        hits=sum(total.count for total in hits),
        saved_s=sum(total.sum_s for total in hits),
        hits_below=_by_reason(counts, "hit")[BELOW],
        puts=_by_reason(counts, "put").total(),
        misses=_by_reason(counts, "miss"),
        put_failures=_by_reason(counts, "put_failed"),
        evictions=_by_reason(counts, "evict"),
        quarantines=_by_reason(counts, "quarantine"),
        waits=sum(total.count for total in waits),
        waited_s=sum(total.sum_s for total in waits),
        takeovers=_by_reason(counts, "takeover").total(),
        failed_builds=_by_reason(counts, "build_failed"),
        cancelled_builds=_by_reason(counts, "build_cancelled").total(),
        remotes=sum_remotes(counts),
    )


def _by_reason(counts: Counters, wanted: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, event, reason, _), total in counts.items():
        if event == wanted:
            found[reason or UNNAMED] += total.count
    return found


def _time(t_ns: int) -> str:
    return datetime.fromtimestamp(t_ns // 10**9, UTC).isoformat()


@click.command(
    epilog=examples(
        "trtcache stats",
        "trtcache stats --since 7d",
        "trtcache stats --by name",
        "trtcache stats --zero",
        "trtcache stats --json | jq .hit_rate",
        "trtcache stats --prometheus > /var/lib/node_exporter/trtcache.tmp",
    )
)
@click.option(
    "--since", metavar="TIME", help="Count events since this time: 7d, 12h, or a day (UTC) such as 2026-11-01."
)
@click.option("--by", type=click.Choice(["name", "kind"]), help="Print a table with a row for each name or kind.")
@click.option("--zero", is_flag=True, help="Set the counters back to zero; entries and logs are not changed.")
@click.option("--prometheus", is_flag=True, help="Print the text format of Prometheus.")
@session_options
def stats(session: Session, since: str | None, by: str | None, zero: bool, prometheus: bool) -> None:
    """Show hits, misses by reason, sizes, compression, waits and the build time that was saved.

    The entries and their sizes are current, even with --since. There is a block for each remote.

    --prometheus needs prometheus-client (pip install 'trtcache[metrics]'), and prints all counters, also those before
    --zero; write it to a file in the textfile folder of node_exporter, and rename it.
    """
    if prometheus and (session.as_json or since is not None or by):
        raise click.UsageError(
            "--prometheus prints counters in a format of its own; leave out --json, --by and --since"
        )
    if zero:
        if since is not None or by or prometheus:
            raise click.UsageError("--zero is an action of its own; leave out --since, --by and --prometheus")
        _zero(session)
        return
    since_ns = None if since is None else parse_since(since, now_ns=time.time_ns(), name="--since")
    store, config = session.store(), session.config()
    records = load_records(store)
    counts, zero_ns = (counters(store), None) if prometheus else counters_from_zero(store, since_ns)
    found = replace(
        summarise(records, counts),
        waiting_uploads=len(store.outbox.digests()),
        root=str(store.root),
        max_size_bytes=config.max_size_bytes,
        max_entries=config.max_entries,
    )
    start_ns = max(since_ns or 0, zero_ns or 0)
    if found.remotes:
        add_times(found.remotes, (event for event in store.events.read() if event.t_ns >= start_ns))
    add_breakers(found.remotes, config)
    if prometheus:
        click.echo(exposition(found), nl=False)
        return
    if config.lower:
        found = replace(found, below=len(rows_of(session.layers())) - found.entries)
    # A time, the day of the first event, or None before it.
    start = _time(start_ns) if since_ns is not None or zero_ns is not None else found.first_day or None
    groups = None if by is None else groups_by(by, records, counts, store.events.read(), start_ns)
    if session.as_json:
        since_time = None if since_ns is None else _time(since_ns)
        document = {"since": since_time, "counted_since": start, **_document(found, counts, records)}
        print_json(document if by is None or groups is None else {**document, f"by_{by}": groups_as_json(groups)})
    elif by is not None and groups is not None:
        print_groups(by, groups)
    else:
        print_pairs(_pairs(found, start))


def _zero(session: Session) -> None:
    """Set the counters back, and print what they were."""
    store = session.writable_store("reset the counters")
    counts, earlier_ns = counters_from_zero(store)
    before = summarise((), counts)
    now_ns = time.time_ns()
    set_zero(store, now_ns=now_ns)
    start = before.first_day or None if earlier_ns is None else _time(earlier_ns)
    if session.as_json:
        figures = {"hits": before.hits, "misses": before.misses.total(), "saved_s": before.saved_s}
        print_json({"root": str(store.root), "zeroed": _time(now_ns), "before": {"counted_since": start, **figures}})
        return
    done = "counters are zero; they were"
    hits = f"{hits_and_misses(before.hits, before.misses.total())}, {format_duration(before.saved_s)} saved"
    note(f"{done} {hits}" + (f", since {start}" if start else "") + "; entries and logs are unchanged")


def _document(found: Stats, counts: Counters, records: Iterable[Record]) -> dict[str, object]:
    kinds = groups_by("kind", records, counts)
    return {
        "root": found.root,
        "entries": found.entries + found.below,
        "entries_below": found.below,
        "pinned": found.pinned,
        "hidden": sums_as_json(found.hidden),
        "file_bytes": found.file_bytes,
        "size_bytes": found.size_bytes,
        "max_size_bytes": found.max_size_bytes,
        "max_entries": found.max_entries,
        "used": found.used,
        "compression": found.compression,
        "kinds": groups_as_json(kinds),
        "hits": found.hits,
        "hits_below": found.hits_below,
        "misses": dict(found.misses),
        "hit_rate": found.hit_rate,
        "puts": found.puts,
        "put_failures": dict(found.put_failures),
        "failed_builds": dict(found.failed_builds),
        "cancelled_builds": found.cancelled_builds,
        "evictions": dict(found.evictions),
        "quarantines": dict(found.quarantines),
        "waits": found.waits,
        "waited_s": found.waited_s,
        "takeovers": found.takeovers,
        "saved_s": found.saved_s,
        "remotes": {url: remote_document(remote) for url, remote in found.remotes.items()},
        "waiting_uploads": found.waiting_uploads,
    }


def _pairs(found: Stats, start: str | None) -> list[tuple[str, str]]:
    rate = "" if found.hit_rate is None else f" ({found.hit_rate:.1%} of lookups)"
    pairs = [
        ("cache directory", found.root),
        *([("since", start)] if start else []),
        *_size_pairs(found),
        ("hits", f"{found.hits:,}{rate}"),
        *([("  from lower layers", f"{found.hits_below:,}")] if found.hits_below else []),
        ("time saved", format_duration(found.saved_s)),
        ("misses", f"{found.misses.total():,}"),
        *((f"  {reason}", f"{count:,}") for reason, count in found.misses.most_common()),
        ("puts", f"{found.puts:,}"),
    ]
    if found.waits:
        pairs.append(("waits", f"{found.waits:,} for other builders, {format_duration(found.waited_s)} in total"))
    if found.takeovers:
        pairs.append(("takeovers", f"{found.takeovers:,} from builders that died"))
    if found.cancelled_builds:
        pairs.append(("cancelled builds", f"{found.cancelled_builds:,}"))
    for title, counts in (
        ("failed builds", found.failed_builds),
        ("failed puts", found.put_failures),
        ("evictions", found.evictions),
        ("quarantines", found.quarantines),
    ):
        if counts:
            pairs.append((title, f"{counts.total():,}"))
            pairs += [(f"  {reason}", f"{count:,}") for reason, count in counts.most_common()]
    for url, remote in found.remotes.items():
        pairs += remote_pairs(url, remote)
    if found.waiting_uploads:
        pairs.append(("waiting uploads", f"{found.waiting_uploads:,} (trtcache push)"))
    return pairs


def _size_pairs(found: Stats) -> list[tuple[str, str]]:
    """Return the rows of entries and sizes."""
    listed_kinds = {kind: sums for kind, sums in found.kinds.items() if kind not in found.hidden}
    ratio = "" if found.compression is None else f" ({found.compression:.2f} to 1)"
    limit = "no limit" if found.used is None else f"{_percent(found.used)} of {format_size(found.max_size_bytes or 0)}"
    pairs = [("entries", f"{found.entries + found.below:,} ({found.pinned:,} pinned)"), *_kinds(listed_kinds)]
    if found.below:
        pairs.append(("  in lower layers", f"{found.below:,}"))
    if found.hidden:
        counts, sizes_bytes = zip(*found.hidden.values(), strict=True)
        pairs.append(("ls --all", f"{sum(counts):,} more, {format_size(sum(sizes_bytes))}"))
        pairs += _kinds(found.hidden, least=1)
    if found.max_entries is not None:
        pairs.append(("entry limit", f"{found.files:,} of {found.max_entries:,}"))
    pairs.append(("size", f"{format_size(found.file_bytes)} on disk ({limit})"))
    pairs.append(("content", f"{format_size(found.size_bytes)}{ratio}"))
    return pairs


def _percent(part: float) -> str:
    return "under 0.1%" if 0 < part < 0.001 else f"{part:.1%}"


def _kinds(sums: Sums, *, least: int = 2) -> list[tuple[str, str]]:
    """Return a row for each kind if there are several."""
    if len(sums) < least:
        return []
    return [(f"  {kind}", f"{entries:,}, {format_size(file_bytes)}") for kind, (entries, file_bytes) in sums.items()]
