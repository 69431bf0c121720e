"""``trtcache rebuild``: build kept programs for the installed versions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from trtcache.config.units import format_duration
from trtcache.errors import SettingsError, TrtcacheError
from trtcache.store.catalog import load_records
from trtcache.store.record import Record, parse_filters
from trtcache_cli.keys import SHORT_DIGITS
from trtcache_cli.output import note, on_terminal, print_json, print_table, print_tsv, working
from trtcache_cli.session import Session, examples, filter_option, require_entry, session_options
from trtcache_cli.termination import raise_terminated

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.store.disk import DiskStore

_HEADER = ("PROGRAM", "NAME", "OUTCOME", "BUILD", "ENGINES", "WHY")
_PROGRAM = "program"


@click.command(epilog=examples("trtcache rebuild --dry-run", "trtcache rebuild --filter 'name~bert'"))
@filter_option
@click.option("-n", "--dry-run", is_flag=True, help="Only list the kept programs.")
@session_options
def rebuild(session: Session, filters: tuple[str, ...], dry_run: bool) -> int:
    """Build the engines of kept programs for the installed versions: after an upgrade, in CI.

    Programs are stored, without weights, by compile(..., keep_program=True) and 'trtcache build --keep-program'. A
    filter selects programs. Existing engines are not rebuilt; a failure does not stop the others, and the exit code is
    then 1.
    """
    click.get_current_context().with_resource(raise_terminated())
    if not dry_run and session.config().disable:
        raise SettingsError("TRTCACHE_DISABLE", "the engines are stored in the cache, which it disables; unset it")
    store = session.store() if dry_run else session.writable_store("rebuild")
    matches = parse_filters(filters, now_ns=time.time_ns())
    records = [record for record in load_records(store) if record.kind == _PROGRAM and matches(record)]
    if not records:
        how = "store one with compile(..., keep_program=True) or 'trtcache build --keep-program'"
        note("no kept program matches the filter" if filters else f"there are no kept programs; {how}")
    cache = None if dry_run else session.cache()
    documents = [_rebuild(session, store, cache, record) for record in records]
    if session.as_json:
        print_json({"dry_run": dry_run, "programs": documents})
    else:
        rows = [
            (
                one["program"][:SHORT_DIGITS],
                one["name"] or "",
                one["outcome"],
                format_duration(one["build_s"]) if one["build_s"] else "",
                " ".join(key[:SHORT_DIGITS] for key in one["engines"]),
                one["why"],
            )
            for one in documents
        ]
        print_table(_HEADER, rows) if on_terminal() else print_tsv(rows)
    return 1 if any(one["outcome"] == "failed" for one in documents) else 0


def _rebuild(session: Session, store: DiskStore, cache: Cache | None, record: Record) -> dict[str, Any]:
    """Rebuild a program, or without a cache only describe it."""
    document: dict[str, Any] = {"program": record.digest, "name": record.name, "outcome": "kept"}
    document |= {"build_s": 0.0, "engines": [], "why": ""}
    if cache is None:
        return document
    from trtcache.compiler.build import rebuild as rebuild_program  # imports torch

    try:
        with working(f"rebuilding {record.name or record.digest[:SHORT_DIGITS]}"):
            report = rebuild_program(cache, require_entry(session.layers(), store.header(record.digest).key))
    except (TrtcacheError, OSError) as error:
        return {**document, "outcome": "failed", "why": str(error)}
    return {
        **document,
        "outcome": report.outcome,
        "build_s": sum((one.build_s for one in report.partitions if one.outcome == "built"), 0.0),
        "engines": [one.key.digest for one in report.partitions if one.key],
    }
