"""``trtcache sync``: copy entries from other stores."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache.config.units import format_size
from trtcache.errors import CorruptBlobError, NotAStoreError, ReadOnlyError, SettingsError
from trtcache.store.record import parse_filters
from trtcache.store.root import is_store
from trtcache_cli.keys import SHORT
from trtcache_cli.output import bytes_bar, note, on_terminal, print_aligned, print_json, print_tsv
from trtcache_cli.session import Session, examples, filter_option, pass_session, session_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.config.environment import Config
    from trtcache.store.disk import DiskStore
    from trtcache.store.record import Record
    from trtcache.store.sync import SyncPlan, SyncResult

NOT_ARRIVED = CorruptBlobError.exit_code

_HEADER = ("KEY", "WHAT", "KIND", "NAME", "SIZE")
_TERMINAL_ROWS = 40


@click.command(
    epilog=examples(
        "trtcache sync /mnt/usb/engines ~/.cache/trtcache",
        "trtcache sync --filter 'kind=aot_inductor,age<7d' --pins ci-1 ci-2 /srv/engines",
        "trtcache sync --dry-run --json /opt/engines /var/cache/engines",
    )
)
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="SRC... DST",
)
@filter_option
@click.option("--pins", is_flag=True, help="Pin in DST the entries pinned in SRC.")
@click.option("--dry-run", is_flag=True, help="Only list what would be copied.")
@session_options
@pass_session
def sync(
    session: Session, directories: tuple[Path, ...], filters: tuple[str, ...], pins: bool, dry_run: bool
) -> int | None:
    """Copy the entries that DST lacks from one or several stores, which are only read.

    Each entry is verified first: header, digests, and signatures where SRC or DST requires them. Rejected entries are
    listed with the reason, and the exit code is then 4. After an interruption, the same command continues with the
    rest.
    """
    from trtcache.store.sync import plan_sync

    sources, root = _places(session, directories)
    config = replace(session.config(), root=root, lower=())
    stores = [_source(path, config) for path in sources]
    target = _target(config, stores, dry_run=dry_run)
    where = parse_filters(filters, now_ns=time.time_ns()) if filters else None
    plan = plan_sync(stores, target, where=where, pins=pins)
    result = None if dry_run else _execute(plan, config)
    _report(session, plan, result)
    return NOT_ARRIVED if (plan.refused if result is None else result.refused) else None


def _places(session: Session, directories: Sequence[Path]) -> tuple[list[Path], Path]:
    """Return the sources and the destination: the last directory, or the one given by --cache-dir."""
    *sources, last = (path.absolute() for path in directories)
    if session.cache_dir is not None:
        return [*sources, last], session.cache_dir.absolute()
    if not sources:
        raise click.UsageError("at least two directories are needed: one or more sources, and the destination last")
    return sources, last


def _source(path: Path, config: Config) -> DiskStore:
    from trtcache.store.disk import DiskStore

    if not is_store(path):
        why = "it has no trtcache-store.json" if path.exists() else "the directory does not exist"
        raise NotAStoreError(str(path), why)
    return DiskStore.open(path, readonly=True, trust=config.trust)


def _target(config: Config, sources: Sequence[DiskStore], *, dry_run: bool) -> DiskStore:
    from trtcache.store.disk import DiskStore

    if any(store.root == config.root.resolve() for store in sources):
        raise SettingsError("sync", f"{config.root} is both a source and the destination")
    looks = dry_run and not is_store(config.root)  # a dry run does not create the store
    store = DiskStore.open(config.root, readonly=config.readonly or looks, trust=config.trust)
    if not store.writable and not dry_run:
        raise ReadOnlyError(str(store.root), "sync into it")
    return store


def _execute(plan: SyncPlan, config: Config) -> SyncResult:
    limit_bytes = config.max_size_bytes
    if limit_bytes is not None and plan.file_bytes > limit_bytes:
        note(
            f"{format_size(plan.file_bytes)} will be copied, and TRTCACHE_MAX_SIZE allows {format_size(limit_bytes)}: "
            f"some of it will be pruned again; raise the limit, or select entries with --filter"
        )
    with bytes_bar("copying", plan.file_bytes) as advance:
        return plan.execute(max_size_bytes=limit_bytes, max_entries=config.max_entries, advance=advance)


def _report(session: Session, plan: SyncPlan, result: SyncResult | None) -> None:
    arrived = tuple(item.record for item in plan.items) if result is None else result.arrived
    refused = plan.refused if result is None else result.refused
    pinned = sorted(plan.pins) if result is None else result.pinned
    if session.as_json:
        print_json(
            {
                "dry_run": result is None,
                "destination": plan.target.location,
                "copied": [record.as_json() for record in arrived],
                "copied_bytes": sum(record.file_bytes for record in arrived),
                "there": plan.there,
                "refused": [
                    {"key": rejected.digest, "source": rejected.root, "reason": rejected.reason, "why": rejected.why}
                    for rejected in refused
                ],
                "pinned": list(pinned),
                "freed_bytes": 0 if result is None else result.freed_bytes,
            }
        )
        return
    rows = [_row(record, "copied" if result else "to copy") for record in arrived]
    rows += [(rejected.digest, rejected.reason, "-", rejected.why or "-", "-") for rejected in refused]
    _print(rows)
    _remark(plan, arrived, len(refused), pinned, result)


def _row(record: Record, what: str) -> tuple[str, ...]:
    return (record.digest, what, record.kind, record.name or "-", format_size(record.file_bytes))


def _print(rows: Sequence[tuple[str, ...]]) -> None:
    if not on_terminal():
        print_tsv(rows)
    elif rows:
        print_aligned(_HEADER, [(row[0][:SHORT], *row[1:]) for row in rows[-_TERMINAL_ROWS:]])
        if len(rows) > _TERMINAL_ROWS:
            note(f"... and {len(rows) - _TERMINAL_ROWS:,} more above")


def _remark(
    plan: SyncPlan, arrived: Sequence[Record], refused: int, pinned: Sequence[str], result: SyncResult | None
) -> None:
    what = "to copy" if result is None else "copied"
    count = "1 entry" if len(arrived) == 1 else f"{len(arrived):,} entries"
    parts = [
        f"{count} of {format_size(sum(one.file_bytes for one in arrived))} {what}",
        f"{plan.there:,} already present",
    ]
    if refused:
        parts.append(f"{refused:,} refused")
    if pinned:
        parts.append(f"{len(pinned):,} {'to pin' if result is None else 'pinned'}")
    if result is not None and result.freed_bytes:
        parts.append(f"{format_size(result.freed_bytes)} pruned")
    note(", ".join(parts))
