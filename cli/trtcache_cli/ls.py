"""``trtcache ls``: list, filter and sort the entries of the cache, or of a remote."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import click

from trtcache.config.units import format_duration, format_size
from trtcache.errors import StoreError
from trtcache.store.catalog import load_records
from trtcache.store.contract import is_companion
from trtcache.store.record import Record, names_one, parse_filters
from trtcache_cli.in_flight import show_building
from trtcache_cli.keys import SHORT_DIGITS
from trtcache_cli.kind_sums import counts_in_words, sum_entries, sums_as_json
from trtcache_cli.output import entries_text, note, on_terminal, print_json, print_table, print_tsv
from trtcache_cli.places import UrlType, refuse_options
from trtcache_cli.remote_ls import list_remote
from trtcache_cli.session import Session, examples, filter_option, session_options

if TYPE_CHECKING:
    from typing import Any

    from trtcache.config.remotes import RemoteUrl
    from trtcache.store.disk import DiskStore
    from trtcache.store.layers import Layers
    from trtcache.store.signatures import Verdict

TERMINAL_ROWS = 200
"""Default number of rows on a terminal."""

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
        "trtcache ls --all",
        "trtcache ls --building",
        "trtcache ls --quiet --filter 'unused>30d' | xargs -r trtcache rm",
        "trtcache ls --long s3://engines/main",
    )
)
@click.argument("url", type=UrlType(), required=False, metavar="[URL]")
@filter_option
@click.option("everything", "-a", "--all", is_flag=True, help="Also list key aliases and other companions of engines.")
@click.option("sort", "-s", "--sort", type=click.Choice(list(SORTS)), default="used", show_default=True)
@click.option("-r", "--reverse", is_flag=True, help="Reverse the order.")
@click.option("--limit", type=click.IntRange(min=0), help="At most this many entries; 0 for all.")
@click.option("--signers", is_flag=True, help="Show who signed each entry; the default where signatures are required.")
@click.option("-l", "--long", is_flag=True, help="Of a remote, also read the headers: kind, name, build, signer.")
@click.option("-q", "--quiet", is_flag=True, help="Print full keys only.")
@click.option("--building", is_flag=True, help="List running builds with their builders and waiters instead.")
@session_options
def ls(
    session: Session,
    url: RemoteUrl | None,
    filters: tuple[str, ...],
    everything: bool,
    sort: str,
    reverse: bool,
    limit: int | None,
    quiet: bool,
    signers: bool,
    building: bool,
    long: bool,
) -> None:
    """List the engines and kept programs, most recently used first.

    Key aliases (kind alias), manifests of direct mode and builder caches are listed with --all, or by a filter for
    their kind or key.

    A condition is FIELD OPERATOR VALUE; commas join several. Fields: age, build, key, kind, members, name, pinned,
    size, target, unused. Operators: = != < <= > >=, and ~ and !~ for substrings.

    URL: list the entries of a remote instead, most recently uploaded first, with size and age. --long or a filter reads
    the first 64 KiB of each.
    """
    if url is not None:
        refuse_options(url, building=building, sort=sort != "used")
        long = long or signers
        list_remote(session, url, filters=filters, headers=long, reverse=reverse, quiet=quiet, limit=limit or 0)
        return
    if long:
        raise click.UsageError("--long is for remotes: trtcache ls --long s3://bucket/prefix")
    now_ns = time.time_ns()
    if building:
        show_building(session, now_ns)
        return
    matches = parse_filters(filters, now_ns=now_ns)
    layers = session.layers()
    found, holders = _entries(layers)
    records, hidden = _split(filter(matches, found), everything=everything or names_one(filters, ("kind", "key")))
    records.sort(key=SORTS[sort], reverse=reverse)
    if limit is None and on_terminal() and not (session.as_json or quiet):
        limit = TERMINAL_ROWS
        if len(records) > limit:
            note(f"{limit} of {len(records):,} entries; --limit 0 shows all")
    shown = records[:limit] if limit else records
    if quiet and not session.as_json:
        print_tsv((record.digest,) for record in shown)
        return
    signers = signers or any(store.admission.required for store in layers.disks)
    verdicts = _verdicts(holders, shown) if signers else None
    if session.as_json:
        documents = _documents(shown, holders, verdicts)
        print_json({"total": len(records), "entries": documents, "hidden": sums_as_json(sum_entries(hidden))})
        return
    columns = {} if verdicts is None else {"SIGNER": [str(verdict or "-") for verdict in verdicts]}
    if layers.lower:
        columns["LAYER"] = [str(holders[record.digest].root) for record in shown]
    _print(shown, now_ns, columns)
    if on_terminal() and (hidden or not records):
        note(_totals(records, hidden) if hidden else "no entries")


def _entries(layers: Layers) -> tuple[list[Record], dict[str, DiskStore]]:
    """Return the entries of all layers, and for each the store that serves it: the first that has it."""
    holders: dict[str, DiskStore] = {}
    records: list[Record] = []
    for store in layers.disks:
        records += [record for record in load_records(store) if holders.setdefault(record.digest, store) is store]
    return records, holders


def rows_of(layers: Layers) -> list[Record]:
    """Return the entries that are listed without ``--all``."""
    return _split(_entries(layers)[0], everything=False)[0]


def _split(records: Iterable[Record], *, everything: bool) -> tuple[list[Record], list[Record]]:
    """Split records into listed and hidden ones."""
    split: tuple[list[Record], list[Record]] = [], []
    for record in records:
        split[is_companion(record.kind) and not everything].append(record)
    return split


def _documents(
    records: list[Record], holders: Mapping[str, DiskStore], verdicts: list[Verdict | None] | None
) -> list[dict[str, object]]:
    signed: list[dict[str, str | None]] = (
        [{}] * len(records) if verdicts is None else list(map(_signature_fields, verdicts))
    )
    return [
        {**record.as_json(), "layer": str(holders[record.digest].root), **more}
        for record, more in zip(records, signed, strict=True)
    ]


def _verdicts(holders: Mapping[str, DiskStore], records: list[Record]) -> list[Verdict | None]:
    """Verify each entry's signatures from its file; None if it is gone, damaged or unreadable."""
    found: list[Verdict | None] = []
    for record in records:
        try:
            found.append(holders[record.digest].verdict(record.digest))
        except (OSError, StoreError):
            found.append(None)
    return found


def _signature_fields(verdict: Verdict | None) -> dict[str, str | None]:
    if verdict is None:
        return {"signer": None, "untrusted": "unreadable"}
    return {"signer": verdict.signer, "untrusted": verdict.reason}


def _totals(records: list[Record], hidden: list[Record]) -> str:
    shown = format_size(sum(record.file_bytes for record in records))
    more = format_size(sum(record.file_bytes for record in hidden))
    rest = f"{len(hidden):,} more of {more} ({counts_in_words(hidden)})"
    return f"{entries_text(len(records))} of {shown}; --all shows {rest}"


def _print(records: list[Record], now_ns: int, columns: Mapping[str, list[str]]) -> None:
    header = (*HEADER, *columns)
    more = list(zip(*columns.values(), strict=True)) if columns else [()] * len(records)
    if not on_terminal():
        print_tsv((*_plain(record), *end) for record, end in zip(records, more, strict=True))
        return
    rows = [(*_human(record, now_ns), *end) for record, end in zip(records, more, strict=True)]
    if records:
        print_table(header, rows, right=("SIZE", "BUILD", "AGE", "UNUSED"), flexible="NAME")


def _plain(record: Record) -> tuple[object, ...]:
    """Return key, kind, name, bytes on disk, build seconds, created and used (s since 1970), pinned: for scripts."""
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
        record.digest[:SHORT_DIGITS],
        record.kind,
        record.name or "-",
        format_size(record.file_bytes),
        format_duration(record.build_s),
        format_duration(max(0, now_ns - record.created_ns) / 1e9),
        format_duration(max(0, now_ns - record.used_ns) / 1e9),
        "yes" if record.pinned else "",
    )
