"""``trtcache ls URL``: list the entries of a remote, with or without reading their headers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trtcache.config.units import format_duration, format_size
from trtcache.store.record import Record, parse_filters
from trtcache_cli.keys import SHORT_DIGITS
from trtcache_cli.output import entries_text, note, on_terminal, print_json, print_table, print_tsv, spinner
from trtcache_cli.places import open_remote

if TYPE_CHECKING:
    from trtcache.config.remotes import RemoteUrl
    from trtcache.store.signatures import Verdict
    from trtcache_cli.session import Session

_SHORT_HEADER = ("KEY", "SIZE", "AGE", "PIN")
_LONG_HEADER = ("KEY", "KIND", "NAME", "SIZE", "BUILD", "AGE", "UPLOADED", "PIN", "SIGNER")


def list_remote(
    session: Session, url: RemoteUrl, *, filters: Sequence[str], headers: bool, reverse: bool, quiet: bool, limit: int
) -> None:
    """Print the entries of a remote, most recently uploaded first.

    With ``headers``, each entry's header is read; a filter needs this.
    """
    now_ns = time.time_ns()
    matches = parse_filters(filters, now_ns=now_ns)
    headers = headers or bool(filters)
    remote = open_remote(session.config(), url)
    with spinner("reading headers" if headers else "listing"):
        listed, verdicts, unreadable = remote.records(headers=headers)
    records = [record for record in listed if matches(record)]
    if reverse:
        records.reverse()
    shown = records[:limit] if limit else records
    if session.as_json:
        documents = [_document(record, verdicts.get(record.digest)) for record in shown]
        bad = [{"key": digest, "reason": reason} for digest, reason in sorted(unreadable.items())]
        print_json({"url": url.text, "total": len(records), "entries": documents, "unreadable": bad})
        return
    if quiet:
        print_tsv((record.digest,) for record in shown)
        return
    rows = [_row(record, verdicts.get(record.digest), now_ns, terminal=on_terminal()) for record in shown]
    if not on_terminal():
        print_tsv(rows)
    elif rows:
        print_table(_LONG_HEADER if headers else _SHORT_HEADER, rows)
    if unreadable:
        note(f"the headers of {entries_text(len(unreadable))} cannot be read; see trtcache verify {url.text}")
    if on_terminal():
        note(f"{entries_text(len(records))} of {format_size(sum(record.file_bytes for record in records))}")


def _document(record: Record, verdict: Verdict | None) -> dict[str, object]:
    if verdict is None:
        brief = {"key": record.digest, "file_bytes": record.file_bytes}
        return {**brief, "uploaded_ns": record.used_ns, "pinned": record.pinned}
    document: dict[str, object] = {**record.as_json(), "uploaded_ns": record.used_ns}
    del document["used_ns"]
    return {**document, "signer": verdict.signer, "untrusted": verdict.reason}


def _row(record: Record, verdict: Verdict | None, now_ns: int, *, terminal: bool) -> tuple[str, ...]:
    """Return a row of text; for scripts with the full key, sizes in bytes, and times in seconds since 1970."""
    pinned = ("yes" if terminal else "pinned") if record.pinned else ""

    def format_time(t_ns: int) -> str:
        return format_duration(max(0, now_ns - t_ns) / 1e9) if terminal else str(t_ns // 10**9)

    key = record.digest[:SHORT_DIGITS] if terminal else record.digest
    size = format_size(record.file_bytes) if terminal else str(record.file_bytes)
    if verdict is None:
        return key, size, format_time(record.used_ns), pinned
    build = format_duration(record.build_s) if terminal else f"{record.build_s:.3f}"
    name = record.name or ("-" if terminal else "")
    created, used = format_time(record.created_ns), format_time(record.used_ns)
    return key, record.kind, name, size, build, created, used, pinned, str(verdict)
