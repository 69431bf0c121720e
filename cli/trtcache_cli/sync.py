"""``trtcache sync``: copy entries between stores and remotes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache.config.remotes import RemoteUrl
from trtcache.config.units import format_size
from trtcache.errors import CorruptBlobError, NotAStoreError, ReadOnlyError, SettingsError
from trtcache.store.record import parse_filters
from trtcache.store.root import is_store
from trtcache_cli.keys import SHORT_DIGITS
from trtcache_cli.output import bytes_bar, entries_text, note, on_terminal, print_json, print_table, print_tsv, spinner
from trtcache_cli.places import PlaceType, open_remote
from trtcache_cli.session import Session, examples, filter_option, session_options

if TYPE_CHECKING:
    from trtcache.config.environment import Config
    from trtcache.store.sync import SyncPlan, SyncResult, SyncStore

NOT_ARRIVED = CorruptBlobError.exit_code

_HEADER = ("KEY", "WHAT", "KIND", "NAME", "SIZE")
_TERMINAL_ROWS = 40


@click.command(
    epilog=examples(
        "trtcache sync /mnt/usb/engines ~/.cache/trtcache",
        "trtcache sync --filter 'kind=aot_inductor,age<7d' --pins ci-1 ci-2 /srv/engines",
        "trtcache sync --dry-run --json /opt/engines /var/cache/engines",
        "trtcache sync s3://engines/main /srv/engines",
    )
)
@click.argument("places", nargs=-1, required=True, type=PlaceType(), metavar="SRC... DST")
@filter_option
@click.option("--pins", is_flag=True, help="Pin in DST the entries pinned in SRC.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be copied.")
@session_options
def sync(
    session: Session, places: tuple[Path | RemoteUrl, ...], filters: tuple[str, ...], pins: bool, dry_run: bool
) -> int | None:
    """Copy the entries that DST lacks from one or several stores, which are only read.

    SRC and DST are directories or URLs of remotes (s3://bucket/prefix); with those, 32 entries are copied at once.

    Each entry is verified first: header, digests, and signatures where SRC or DST requires them. Refused entries are
    listed with the reason, and the exit code is then 4. After an interruption, the same command continues with the
    rest.
    """
    from trtcache.store.sync import plan_sync

    sources, last = _places(session, places)
    config = session.config()
    stores = [_source(place, config) for place in sources]
    target = _target(config, last, stores, dry_run=dry_run)
    where = parse_filters(filters, now_ns=time.time_ns()) if filters else None
    with spinner("comparing"):
        plan = plan_sync(stores, target, where=where, pins=pins, headers=dry_run)
    result = None if dry_run else _execute(plan, config)
    _report(session, plan, result)
    return NOT_ARRIVED if (plan.refused if result is None else result.refused) else None


def _places(session: Session, places: Sequence[Path | RemoteUrl]) -> tuple[list[Path | RemoteUrl], Path | RemoteUrl]:
    """Return the sources and the destination: the last place, or the one given by --cache-dir."""
    *sources, last = (place if isinstance(place, RemoteUrl) else place.absolute() for place in places)
    if session.cache_dir is not None:
        return [*sources, last], session.cache_dir.absolute()
    if not sources:
        raise click.UsageError("at least two directories are needed: one or more sources, and the destination last")
    return sources, last


def _source(place: Path | RemoteUrl, config: Config) -> SyncStore:
    from trtcache.store.disk import DiskStore

    if isinstance(place, RemoteUrl):
        return open_remote(config, place, copies=True)
    if not is_store(place):
        why = "it has no trtcache-store.json" if place.exists() else "the directory does not exist"
        raise NotAStoreError(str(place), why)
    return DiskStore.open(place, readonly=True, trust=config.trust)


def _target(config: Config, place: Path | RemoteUrl, sources: Sequence[SyncStore], *, dry_run: bool) -> SyncStore:
    from trtcache.store.disk import DiskStore

    if isinstance(place, RemoteUrl):
        remote = open_remote(config, place, copies=True)
        _refuse_source(remote.location, sources)
        return remote
    _refuse_source(str(place.resolve()), sources)
    looks = dry_run and not is_store(place)  # a dry run does not create the store
    store = DiskStore.open(place, readonly=config.readonly or looks, trust=config.trust)
    if not store.writable and not dry_run:
        raise ReadOnlyError(str(store.root), "copy entries")
    return store


def _refuse_source(location: str, sources: Sequence[SyncStore]) -> None:
    if any(store.location == location for store in sources):
        raise SettingsError("sync", f"{location} is both a source and the destination")


def _execute(plan: SyncPlan, config: Config) -> SyncResult:
    from trtcache.store.disk import DiskStore

    limit_bytes = config.max_size_bytes if isinstance(plan.target, DiskStore) else None
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
                "there": plan.present,
                "refused": [
                    {"key": entry.digest, "source": entry.root, "reason": entry.reason, "why": entry.why}
                    for entry in refused
                ],
                "pinned": list(pinned),
                "freed_bytes": 0 if result is None else result.freed_bytes,
            }
        )
        return
    what = "to copy" if result is None else "copied"
    rows = [
        (record.digest, what, record.kind, record.name or "-", format_size(record.file_bytes)) for record in arrived
    ]
    rows += [(entry.digest, entry.reason, "-", entry.why or "-", "-") for entry in refused]
    if not on_terminal():
        print_tsv(rows)
    elif rows:
        print_table(_HEADER, [(row[0][:SHORT_DIGITS], *row[1:]) for row in rows[-_TERMINAL_ROWS:]])
        if len(rows) > _TERMINAL_ROWS:
            note(f"... and {len(rows) - _TERMINAL_ROWS:,} more above")
    parts = [
        f"{entries_text(len(arrived))} of {format_size(sum(record.file_bytes for record in arrived))} {what}",
        f"{plan.present:,} already present",
    ]
    if refused:
        parts.append(f"{len(refused):,} refused")
    if pinned:
        parts.append(f"{len(pinned):,} {'to pin' if result is None else 'pinned'}")
    if result is not None and result.freed_bytes:
        parts.append(f"{format_size(result.freed_bytes)} pruned")
    note(", ".join(parts))
