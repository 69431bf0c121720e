"""``trtcache ls``: the entries, filtered and sorted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from trtcache.errors import StoreError
from trtcache.quantities import format_duration, format_size
from trtcache.store.catalog import load_records
from trtcache.store.filters import parse_filters
from trtcache_cli.in_flight import show_building
from trtcache_cli.keys import SHORT
from trtcache_cli.output import note, on_terminal, print_aligned, print_json, print_table, print_tsv
from trtcache_cli.session import Session, examples, filter_option, pass_session, session_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from trtcache.store.disk import DiskStore
    from trtcache.store.layers import Layers
    from trtcache.store.record import Record
    from trtcache.store.signatures import Verdict

TERMINAL_ROWS = 200
"""How many rows a terminal is shown unasked: rich needs 3.5 s for 10,000."""

HEADER = ("KEY", "KIND", "NAME", "SIZE", "BUILD", "AGE", "UNUSED", "PIN")

SORTS: dict[str, Callable[[Record], Any]] = {
    "used": lambda record: -record.used_ns,
    "size": lambda record: -record.file_bytes,
    "age": lambda record: -record.created_ns,
    "build": lambda record: -record.build_s,
    "name": lambda record: (record.name or "", record.kind),
    "kind": lambda record: (record.kind, record.name or ""),
}


@click.command(
    epilog=examples(
        "trtcache ls --filter 'size>100MB' --sort size",
        "trtcache ls -f kind=aot_inductor,name~bert",
        "trtcache ls --building",
        "trtcache ls --quiet --filter 'unused>30d' | xargs trtcache rm",
    )
)
@filter_option
@click.option("sort", "-s", "--sort", type=click.Choice(list(SORTS)), default="used", show_default=True)
@click.option("-r", "--reverse", is_flag=True, help="Turn the order round.")
@click.option("-n", "--limit", type=click.IntRange(min=0), help="At most this many entries; 0 for all.")
@click.option("--signers", is_flag=True, help="Show who signed each entry; so it is where signatures are required.")
@click.option("-q", "--quiet", is_flag=True, help="Print full keys only.")
@click.option("--building", is_flag=True, help="Show what is being built now instead: by whom, and who waits.")
@session_options
@pass_session
def ls(
    session: Session,
    filters: tuple[str, ...],
    sort: str,
    reverse: bool,
    limit: int | None,
    quiet: bool,
    signers: bool,
    building: bool,
) -> None:
    """List the entries, last used first.

    A condition is FIELD OPERATOR VALUE; commas join several. Fields: age, build, key, kind, members, name, pinned,
    size, unused. Operators: = != < <= > >=, and ~ and !~ for a part of a text.
    """
    now_ns = time.time_ns()
    if building:
        show_building(session, now_ns)
        return
    matches = parse_filters(filters, now_ns=now_ns)
    layers = session.layers()
    records, holders = _entries(layers)
    records = [record for record in records if matches(record)]
    records.sort(key=SORTS[sort], reverse=reverse)
    if limit is None and on_terminal() and not (session.as_json or quiet):
        limit = TERMINAL_ROWS
        if len(records) > limit:
            note(f"{limit} of {len(records):,} entries; --limit 0 shows all")
    shown = records[:limit] if limit else records
    if quiet and not session.as_json:
        print_tsv((record.digest,) for record in shown)
        return
    signers = signers or any(store.admission.required for store in layers.stores)
    verdicts = _verdicts(holders, shown) if signers else None
    if session.as_json:
        signed: list[dict[str, str | None]] = [{}] * len(shown) if verdicts is None else list(map(_signed, verdicts))
        entries = [
            {**record.as_json(), "layer": str(holders[record.digest].root), **more}
            for record, more in zip(shown, signed, strict=True)
        ]
        print_json({"total": len(records), "entries": entries})
        return
    columns = {} if verdicts is None else {"SIGNER": [str(one or "-") for one in verdicts]}
    if layers.lower:
        columns["LAYER"] = [str(holders[record.digest].root) for record in shown]
    _print(shown, now_ns, columns)


def _entries(layers: Layers) -> tuple[list[Record], dict[str, DiskStore]]:
    """Return the entries of all layers, and for each the store that serves it: the first that has it."""
    holders: dict[str, DiskStore] = {}
    records: list[Record] = []
    for store in layers.stores:
        records += [one for one in load_records(store) if holders.setdefault(one.digest, store) is store]
    return records, holders


def _verdicts(holders: Mapping[str, DiskStore], records: list[Record]) -> list[Verdict | None]:
    """Return who signed each entry, from its own file; None for one that is gone, damaged or closed by now."""
    found: list[Verdict | None] = []
    for record in records:
        try:
            found.append(holders[record.digest].verdict(record.digest))
        except (OSError, StoreError):
            found.append(None)
    return found


def _signed(verdict: Verdict | None) -> dict[str, str | None]:
    if verdict is None:
        return {"signer": None, "untrusted": "unreadable"}
    return {"signer": verdict.signer, "untrusted": verdict.reason}


def _print(records: list[Record], now_ns: int, columns: Mapping[str, list[str]]) -> None:
    header = (*HEADER, *columns)
    more = list(zip(*columns.values(), strict=True)) if columns else [()] * len(records)
    if not on_terminal():
        print_tsv((*_plain(record), *end) for record, end in zip(records, more, strict=True))
        return
    rows = [(*_human(record, now_ns), *end) for record, end in zip(records, more, strict=True)]
    if len(records) > TERMINAL_ROWS:
        print_aligned(header, rows)
    elif records:
        print_table(header, rows, right=("SIZE", "BUILD", "AGE", "UNUSED"), flexible="NAME")
    else:
        note("no entries")


def _plain(record: Record) -> tuple[object, ...]:
    """Return key, kind, name, bytes on disk, build seconds, created and used (s since 1970), pinned: for programs."""
    created_s, used_s = record.created_ns // 10**9, record.used_ns // 10**9
    pinned = "pinned" if record.pinned else ""
    return (
        record.digest,
        record.kind,
        record.name,
        record.file_bytes,
        f"{record.build_s:.3f}",
        created_s,
        used_s,
        pinned,
    )


def _human(record: Record, now_ns: int) -> tuple[str, ...]:
    return (
        record.digest[:SHORT],
        record.kind,
        record.name or "-",
        format_size(record.file_bytes),
        format_duration(record.build_s),
        format_duration(max(0, now_ns - record.created_ns) / 1e9),
        format_duration(max(0, now_ns - record.used_ns) / 1e9),
        "yes" if record.pinned else "",
    )
