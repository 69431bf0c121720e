"""Show, confirm and execute a prune plan, for the commands that remove entries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import click

from trtcache.config.units import format_duration, format_size
from trtcache_cli.keys import SHORT_DIGITS
from trtcache_cli.kind_sums import counts_in_words, sum_entries, sums_as_json
from trtcache_cli.output import entries_text, note, on_terminal, print_json, print_table, print_tsv

if TYPE_CHECKING:
    from trtcache.store.catalog import PrunePlan
    from trtcache_cli.session import Session

_HEADER = ("KEY", "KIND", "NAME", "SIZE", "BUILD", "WHY")
_TERMINAL_ROWS = 40


def execute_plan(
    session: Session,
    plan: PrunePlan,
    execute: Callable[[], tuple[int, Collection[str]]],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Print the plan, ask for confirmation on a terminal, and ``execute`` it.

    ``execute`` returns the bytes freed, and the digests of entries that stay because they were pinned meanwhile.
    """
    if not session.as_json:
        _print_plan(plan)
    freed_bytes, will_execute = plan.freed_bytes, bool(plan.evict) and not dry_run
    if will_execute:
        confirm(f"Remove {entries_text(len(plan.evict))}, {format_size(plan.freed_bytes)}?", yes=yes)
        freed_bytes, spared = execute()
        plan = plan.without(spared)
    if session.as_json:
        print_json(_as_json(plan, freed_bytes, dry_run=dry_run))
    elif will_execute:
        note(f"freed {format_size(freed_bytes)}; {entries_text(len(plan.kept))} left, {format_size(plan.bytes_after)}")


def confirm(question: str, *, yes: bool) -> None:
    """Return if ``yes`` or if the user confirms.

    Raises:
        click.UsageError: there is no terminal for a confirmation.
        click.Abort: the user declined.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            "standard input is not a terminal; use -y to remove without confirmation, or --dry-run to preview"
        )
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        note("nothing was removed")
        raise


def _print_plan(plan: PrunePlan) -> None:
    rows = [
        (
            eviction.record.digest[:SHORT_DIGITS],
            eviction.record.kind or "-",
            eviction.record.name or "-",
            format_size(eviction.record.file_bytes),
            format_duration(eviction.record.build_s),
            eviction.reason,
        )
        for eviction in plan.evict
    ]
    if not on_terminal():
        print_tsv((eviction.record.digest, *row[1:]) for eviction, row in zip(plan.evict, rows, strict=True))
    elif rows:
        print_table(_HEADER, rows[:_TERMINAL_ROWS], right=("SIZE", "BUILD"), flexible="NAME")
        if len(rows) > _TERMINAL_ROWS:
            note(f"... and {len(rows) - _TERMINAL_ROWS:,} more")
    kept = f"to keep: {entries_text(len(plan.kept))}, {format_size(plan.bytes_after)}"
    has_kinds = any(eviction.record.kind for eviction in plan.evict)  # the listing of a remote has none
    kinds = f" ({counts_in_words(eviction.record for eviction in plan.evict)})" if has_kinds else ""
    note(f"to remove: {entries_text(len(rows))}, {format_size(plan.freed_bytes)}{kinds}; {kept}")


def _as_json(plan: PrunePlan, freed_bytes: int, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "evict": [{**eviction.record.as_json(), "reason": eviction.reason} for eviction in plan.evict],
        "kinds": sums_as_json(sum_entries(eviction.record for eviction in plan.evict)),
        "kept": len(plan.kept),
        "bytes_before": plan.bytes_before,
        "bytes_after": plan.bytes_after,
        "freed_bytes": freed_bytes,
    }
