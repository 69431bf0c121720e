"""``trtcache clean``: remove all entries except pinned ones."""

from __future__ import annotations

from dataclasses import replace

import click

from trtcache.config.units import format_size
from trtcache.store.catalog import Eviction, PrunePlan, load_records, remove
from trtcache.store.root import is_store
from trtcache_cli.output import entries_text, note, print_json
from trtcache_cli.removal import confirm, execute_plan
from trtcache_cli.session import Session, examples, session_options


@click.command(epilog=examples("trtcache clean --dry-run", "trtcache clean -y"))
@click.option("everything", "--all", is_flag=True, help="Remove pinned entries and their pins too.")
@click.option("-n", "--dry-run", is_flag=True, help="Print the plan and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@session_options
def clean(session: Session, everything: bool, dry_run: bool, yes: bool) -> None:
    """Remove all entries except pinned ones, all quarantined files, and files of killed writers.

    The directory remains a store, and the counters of stats are kept. Without a terminal, -y is needed.
    """
    is_read_only = dry_run or not is_store(session.config().root)
    store = session.store() if is_read_only else session.writable_store("clean")
    records = load_records(store)
    chosen = [record for record in records if everything or not record.pinned]
    plan = PrunePlan(
        tuple(Eviction(replace(record, pinned=False), "clean") for record in chosen),
        tuple(record for record in records if record.pinned and not everything),
    )
    if dry_run:
        execute_plan(session, plan, lambda: (0, ()), dry_run=True, yes=yes)
        return
    if plan.evict:
        confirm(f"Remove {entries_text(len(plan.evict))}, {format_size(plan.freed_bytes)}?", yes=yes)
    freed_bytes = remove(store, plan.evict, forced=everything)
    pins = frozenset() if everything else store.pins()  # those pinned since the plan were kept
    removed = [one.record.digest for one in plan.evict if one.record.digest not in pins]
    kept = len(plan.kept) + len(plan.evict) - len(removed)
    if everything:
        for digest in store.pins().intersection(removed):
            store.unpin(digest)
    swept_bytes = 0 if is_read_only else store.sweep(quarantine_s=0.0)
    if session.as_json:
        print_json({"removed": removed, "kept": kept, "freed_bytes": freed_bytes + swept_bytes})
    else:
        note(f"removed {entries_text(len(removed))}, freed {format_size(freed_bytes + swept_bytes)}")
