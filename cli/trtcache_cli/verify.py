"""``trtcache verify``: read and check every byte."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trtcache.errors import CorruptBlobError, FormatVersionError, UnknownKeyError
from trtcache.quantities import format_size
from trtcache_cli.keys import KeyType
from trtcache_cli.output import note, print_json, print_tsv
from trtcache_cli.session import Session, examples, pass_session, session_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trtcache.store.disk import DiskStore, Stored

DAMAGED = CorruptBlobError.exit_code


@dataclass(frozen=True, slots=True)
class Finding:
    """An entry that did not pass, and why."""

    digest: str
    reason: str
    why: str


@click.command(epilog=examples("trtcache verify", "trtcache verify --repair --json"))
@click.argument("keys", nargs=-1, type=KeyType(), metavar="[KEY]...")
@click.option("--repair", is_flag=True, help="Quarantine what is damaged, and make the index anew.")
@session_options
@pass_session
def verify(session: Session, keys: tuple[str, ...], repair: bool) -> int:
    """Check every byte of all entries, or of those named.

    Exits with 4 if something is damaged, and with 0 once --repair has moved it aside: a damaged entry is built again
    when it is next asked for.
    """
    store = session.writable_store("repair") if repair else session.store()
    wanted = {store.resolve(key) for key in keys}
    files = [stored for stored in store.scan() if not wanted or stored.digest in wanted]
    with _progress(sum(stored.file_bytes for stored in files)) as advance:
        findings = check(store, files, advance)
    if repair:
        _repair(store, findings)
    _report(session, files, findings, repaired=repair)
    return DAMAGED if findings and not repair else 0


def check(store: DiskStore, files: Sequence[Stored], advance: Callable[[int], None]) -> list[Finding]:
    """Return what is damaged among ``files``, calling ``advance`` with the bytes of each as it is done."""
    findings = []
    for stored in files:
        try:
            store.check(stored.digest)
        except UnknownKeyError:
            pass  # removed since the scan
        except CorruptBlobError as error:
            findings.append(Finding(stored.digest, error.reason, error.why))
        except FormatVersionError as error:
            note(str(error))
        advance(stored.file_bytes)
    return findings


def _repair(store: DiskStore, findings: Sequence[Finding]) -> None:
    from trtcache.store.catalog import rebuild

    for finding in findings:
        store.quarantine(finding.digest, finding.reason)
    rebuild(store)


def _report(session: Session, files: Sequence[Stored], findings: Sequence[Finding], *, repaired: bool) -> None:
    checked_bytes = sum(stored.file_bytes for stored in files)
    if session.as_json:
        damaged = [{"key": one.digest, "reason": one.reason, "why": one.why} for one in findings]
        print_json({"checked": len(files), "checked_bytes": checked_bytes, "damaged": damaged, "repaired": repaired})
        return
    print_tsv((one.digest, one.reason, one.why) for one in findings)
    done = "; moved aside, and the index made anew" if repaired else ""
    note(f"{len(files):,} entries, {format_size(checked_bytes)}: {len(findings):,} damaged{done}")


@contextmanager
def _progress(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal's standard error, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("verifying", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verify", total=total_bytes)
        yield lambda done: progress.advance(task, done)
