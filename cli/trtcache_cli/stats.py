"""``trtcache stats``: hits, misses, sizes and saved time."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from trtcache.config.units import format_duration, format_size, parse_since
from trtcache.store.catalog import counters, counters_since, load_records, refold
from trtcache.store.layers import BELOW
from trtcache_cli.kind_sums import as_json, sums_of
from trtcache_cli.output import print_json, print_pairs
from trtcache_cli.prometheus import exposition
from trtcache_cli.remote_stats import RemoteStats, add_breakers, add_times, remote_document, remote_pairs, sum_remotes
from trtcache_cli.session import Session, examples, pass_session, session_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.store.events import Counters
    from trtcache.store.record import Record
    from trtcache_cli.kind_sums import Sums

UNNAMED = "unknown"
"""Reason of events without one."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The displayed totals."""

    entries: int
    pinned: int
    file_bytes: int
    size_bytes: int
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
    remotes: dict[str, RemoteStats] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float | None:
        """Hits per lookup, or None before the first lookup."""
        lookups = self.hits + self.misses.total()
        return self.hits / lookups if lookups else None

    @property
    def compression(self) -> float | None:
        """Uncompressed bytes per byte on disk, or None for an empty store."""
        return self.size_bytes / self.file_bytes if self.file_bytes else None


def summarise(records: Iterable[Record], counts: Counters) -> Stats:
    """Sum up entries and counters."""
    records = list(records)
    hits, waits = ([total for (_, event, _, _), total in counts.items() if event == one] for one in ("hit", "wait"))
    return Stats(
        entries=len(records),
        pinned=sum(record.pinned for record in records),
        file_bytes=sum(record.file_bytes for record in records),
        size_bytes=sum(record.size_bytes for record in records),
        kinds=sums_of(records),
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
        remotes=sum_remotes(counts),
    )


def _by_reason(counts: Counters, wanted: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, event, reason, _), total in counts.items():
        if event == wanted:
            found[reason or UNNAMED] += total.count
    return found


@click.command(
    epilog=examples(
        "trtcache stats",
        "trtcache stats --since 7d",
        "trtcache stats --json | jq .hit_rate",
        "trtcache stats --prometheus > /var/lib/node_exporter/trtcache.tmp",
    )
)
@click.option(
    "--since", metavar="TIME", help="Count events since this time: 7d, 12h, or a day (UTC) such as 2026-11-01."
)
@click.option("--prometheus", is_flag=True, help="Print the text format of Prometheus.")
@session_options
@pass_session
def stats(session: Session, since: str | None, prometheus: bool) -> None:
    """Show hits, misses by reason, sizes, compression, waits and the build time that was saved.

    The entries and their sizes are current, also with --since. There is a block for each remote.

    --prometheus needs prometheus-client (pip install 'trtcache[metrics]'), and prints all counters; write it to a file
    in the textfile folder of node_exporter, and rename it.
    """
    if prometheus and (session.as_json or since is not None):
        raise click.UsageError("--prometheus prints counters in a format of its own; leave out --json and --since")
    since_ns = None if since is None else parse_since(since, now_ns=time.time_ns(), name="--since")
    store = session.store()
    records = load_records(store)
    if store.writable:
        refold(store, records)
    found = summarise(records, counters(store) if since_ns is None else counters_since(store, since_ns))
    if found.remotes:
        add_times(found.remotes, (event for event in store.events.read() if event.t_ns >= (since_ns or 0)))
    add_breakers(found.remotes, session.config())
    if prometheus:
        click.echo(exposition(found, str(store.root)), nl=False)
        return
    start = None if since_ns is None else datetime.fromtimestamp(since_ns // 10**9, UTC).isoformat()
    if session.as_json:
        print_json({"since": start, **_document(found, str(store.root))})
    else:
        print_pairs(([] if start is None else [("since", start)]) + _pairs(found, str(store.root)))


def _document(found: Stats, root: str) -> dict[str, object]:
    return {
        "root": root,
        "entries": found.entries,
        "pinned": found.pinned,
        "file_bytes": found.file_bytes,
        "size_bytes": found.size_bytes,
        "compression": found.compression,
        "kinds": as_json(found.kinds),
        "hits": found.hits,
        "hits_below": found.hits_below,
        "misses": dict(found.misses),
        "hit_rate": found.hit_rate,
        "puts": found.puts,
        "put_failures": dict(found.put_failures),
        "evictions": dict(found.evictions),
        "quarantines": dict(found.quarantines),
        "waits": found.waits,
        "waited_s": found.waited_s,
        "takeovers": found.takeovers,
        "saved_s": found.saved_s,
        "remotes": {url: remote_document(remote) for url, remote in found.remotes.items()},
    }


def _pairs(found: Stats, root: str) -> list[tuple[str, str]]:
    rate = "" if found.hit_rate is None else f" ({found.hit_rate:.1%} of lookups)"
    ratio = "" if found.compression is None else f" ({found.compression:.2f} to 1)"
    below = [("  from lower layers", f"{found.hits_below:,}")] if found.hits_below else []
    pairs = [
        ("cache directory", root),
        ("entries", f"{found.entries:,} ({found.pinned:,} pinned)"),
        *_kinds(found.kinds),
        ("size", f"{format_size(found.file_bytes)} on disk, {format_size(found.size_bytes)} of content{ratio}"),
        ("hits", f"{found.hits:,}{rate}"),
        *below,
        ("time saved", format_duration(found.saved_s)),
        ("misses", f"{found.misses.total():,}"),
        *((f"  {reason}", f"{count:,}") for reason, count in found.misses.most_common()),
        ("puts", f"{found.puts:,}"),
    ]
    if found.waits:
        pairs.append(("waits", f"{found.waits:,} for other builders, {format_duration(found.waited_s)} in total"))
    if found.takeovers:
        pairs.append(("takeovers", f"{found.takeovers:,} from builders that died"))
    reasons = (("failed puts", found.put_failures), ("evictions", found.evictions), ("quarantines", found.quarantines))
    for title, counts in reasons:
        if counts:
            pairs.append((title, f"{counts.total():,}"))
            pairs += [(f"  {reason}", f"{count:,}") for reason, count in counts.most_common()]
    for url, remote in found.remotes.items():
        pairs += remote_pairs(url, remote)
    return pairs


def _kinds(sums: Sums) -> list[tuple[str, str]]:
    """Return a row for each kind if there are several."""
    if len(sums) < 2:
        return []
    return [(f"  {kind}", f"{entries:,}, {format_size(file_bytes)}") for kind, (entries, file_bytes) in sums.items()]
