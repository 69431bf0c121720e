"""``trtcache prune``: evict entries by size, age, idle time or filter."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import click

from trtcache.config.units import parse_duration, parse_size
from trtcache.store.catalog import PrunePlan, load_records, plan_prune
from trtcache.store.record import Record, parse_filters
from trtcache_cli.output import entries_text, note, spinner
from trtcache_cli.places import UrlType, open_remote, refuse_options
from trtcache_cli.removal import execute_plan
from trtcache_cli.session import Session, examples, filter_option, session_options

if TYPE_CHECKING:
    from trtcache.config.remotes import RemoteUrl
    from trtcache.remote.entries import RemoteEntries
    from trtcache.store.disk import DiskStore

_RECENT_NS = 3600 * 10**9


@click.command(
    epilog=examples(
        "trtcache prune --max-size 10GB --dry-run",
        "trtcache prune --unused-for 30d -y",
        "trtcache prune --filter 'kind=tensorrt,size>1GB' --older-than 7d",
        "trtcache prune --stale-toolchain --dry-run",
        "trtcache prune s3://engines/main --unused 30d --max-size 2TB --dry-run",
    )
)
@click.argument("url", type=UrlType(), required=False, metavar="[URL]")
@click.option("--max-size", metavar="SIZE", help="Evict until the cache is no larger, such as 10GB.")
@click.option("--max-entries", metavar="COUNT", type=click.IntRange(0), help="Evict until there are no more entries.")
@click.option("--stale-toolchain", is_flag=True, help="Evict entries that no installed version can use.")
@click.option("--older-than", metavar="DURATION", help="Evict entries built longer ago, such as 30d.")
@click.option("--unused-for", "--unused", metavar="DURATION", help="Evict entries not used for this long, such as 7d.")
@filter_option
@click.option("-n", "--dry-run", is_flag=True, help="Print the plan and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@session_options
def prune(
    session: Session,
    url: RemoteUrl | None,
    max_size: str | None,
    max_entries: int | None,
    stale_toolchain: bool,
    older_than: str | None,
    unused_for: str | None,
    filters: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Evict entries, except pinned ones. Without options, TRTCACHE_MAX_SIZE and TRTCACHE_MAX_ENTRIES are the limits.

    To satisfy a size or a number limit, entries that save the least build time per byte and were not used for long are
    evicted first. A filter limits which entries may be evicted; alone, it evicts all matches. Without a terminal, -y is
    needed.

    Hits of processes that only read the cache, such as with TRTCACHE_READONLY=1, are not recorded as uses: run
    'trtcache warm' before, or pin the entries.

    URL: evict entries of a remote instead, by the time of their upload. At least one option is needed; entries that
    were uploaded in the last hour stay, too.
    """
    config = session.config()
    now_ns = time.time_ns()
    size_bytes = None if max_size is None else parse_size(max_size, "--max-size")
    older_s = None if older_than is None else parse_duration(older_than, "--older-than")
    unused_s = None if unused_for is None else parse_duration(unused_for, "--unused-for")
    where = parse_filters(filters, now_ns=now_ns) if filters else None
    if url is not None:
        refuse_options(url, stale_toolchain=stale_toolchain)
    if (size_bytes, max_entries, older_s, unused_s, where) == (None,) * 5 and not stale_toolchain:
        if url is not None:
            raise click.UsageError("a remote has no limits in the settings: pass --unused or --max-size")
        size_bytes, max_entries = config.max_size_bytes, config.max_entries
    plan_rest = partial(
        plan_prune,
        now_ns=now_ns,
        max_size_bytes=size_bytes,
        max_entries=max_entries,
        older_than_s=older_s,
        unused_for_s=unused_s,
        where=where,
    )
    if url is not None:
        remote = open_remote(config, url)
        with spinner("listing" if where is None else "reading headers"):
            records, _, unreadable = remote.records(headers=where is not None)
        if unreadable:
            count = entries_text(len(unreadable))
            note(f"kept, because the header cannot be read: {count}; see trtcache verify {url.text}")
        # Other hosts will probably fetch soon what was uploaded just now; and clocks differ.
        recent = [record.digest for record in records if record.used_ns > now_ns - _RECENT_NS]
        plan = plan_rest(records, keep=recent, oldest_first=True)
        if recent and not session.as_json:
            note(f"kept, because uploaded in the last hour: {entries_text(len(recent))}")
        execute_plan(session, plan, lambda: _evict(remote, plan), dry_run=dry_run, yes=yes)
        return
    store = session.store() if dry_run else session.writable_store("prune")
    records = load_records(store)
    plan = plan_rest(records, stale=_stale(store, records) if stale_toolchain else None)
    execute_plan(session, plan, lambda: (plan.execute(store), store.pins()), dry_run=dry_run, yes=yes)


def _evict(remote: RemoteEntries, plan: PrunePlan) -> tuple[int, Collection[str]]:
    """Delete the planned entries that were not pinned meanwhile; return the bytes freed, and the entries that stay."""
    planned = {eviction.record.digest: eviction.record for eviction in plan.evict}
    with spinner("removing"):
        removed = remote.remove(planned)
    return sum(planned[digest].file_bytes for digest in removed), planned.keys() - removed


def _stale(store: DiskStore, records: list[Record]) -> dict[str, str]:
    from trtcache.compiler.build import Staleness  # imports torch

    found = Staleness.of(store, records)
    for kind, why in sorted(found.unchecked.items()):
        note(f"entries of {kind} are kept: {why}")
    return dict.fromkeys(found.stale, "stale-toolchain")
