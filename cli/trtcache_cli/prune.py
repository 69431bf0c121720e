"""``trtcache prune``: evict by size, age, idleness or filter."""

from __future__ import annotations

import time

import click

from trtcache.quantities import parse_duration, parse_size
from trtcache.store.catalog import load_records
from trtcache.store.filters import parse_filters
from trtcache.store.gc import plan_prune
from trtcache_cli.removal import carry_out
from trtcache_cli.session import Session, examples, filter_option, pass_session, session_options


@click.command(
    epilog=examples(
        "trtcache prune --max-size 10GB --dry-run",
        "trtcache prune --unused-for 30d -y",
        "trtcache prune --filter 'kind=tensorrt,size>1GB' --older-than 7d",
    )
)
@click.option("--max-size", metavar="SIZE", help="Evict until the cache is no larger, such as 10GB.")
@click.option("--older-than", metavar="TIME", help="Evict what was built longer ago, such as 30d.")
@click.option("--unused-for", metavar="TIME", help="Evict what was not used for so long, such as 7d.")
@filter_option
@click.option("--dry-run", is_flag=True, help="Print the plan and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@session_options
@pass_session
def prune(
    session: Session,
    max_size: str | None,
    older_than: str | None,
    unused_for: str | None,
    filters: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Evict entries; pinned ones stay. Without a limit, TRTCACHE_MAX_SIZE is the limit.

    To come below a size, what saves the least time of building per byte and was not used for long goes first. A
    filter limits which entries may go; alone, all that match go. Without a terminal, -y is needed.
    """
    config = session.config()
    now_ns = time.time_ns()
    size_bytes = None if max_size is None else parse_size(max_size, "--max-size")
    if (max_size, older_than, unused_for) == (None, None, None) and not filters:
        size_bytes = config.max_size_bytes
    store = session.store() if dry_run else session.writable_store("prune")
    plan = plan_prune(
        load_records(store),
        now_ns=now_ns,
        max_size_bytes=size_bytes,
        older_than_s=None if older_than is None else parse_duration(older_than, "--older-than"),
        unused_for_s=None if unused_for is None else parse_duration(unused_for, "--unused-for"),
        where=parse_filters(filters, now_ns=now_ns) if filters else None,
    )
    carry_out(session, store, plan, dry_run=dry_run, yes=yes)
