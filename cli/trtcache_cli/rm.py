"""``trtcache rm``: remove entries by key."""

from __future__ import annotations

import sys

import click

from trtcache.config.units import format_size
from trtcache.store.catalog import Eviction, load_records, remove
from trtcache_cli.keys import SHORT_DIGITS, KeyType, resolve_upper
from trtcache_cli.output import entries_text, note, on_terminal, print_json, print_table, print_tsv
from trtcache_cli.removal import confirm
from trtcache_cli.session import Session, examples, session_options


@click.command(epilog=examples("trtcache rm 3fa9 b771", "trtcache ls -q -f 'unused>30d' | xargs -r trtcache rm"))
@click.argument("keys", nargs=-1, required=True, type=KeyType(), metavar="KEY...")
@click.option("-n", "--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Remove pinned entries too.")
@session_options
def rm(session: Session, keys: tuple[str, ...], force: bool, dry_run: bool, yes: bool) -> None:
    """Remove entries by key. All keys are resolved before anything is removed.

    If standard input is a terminal, the command asks first, on standard error. Without a terminal it does not ask.
    """
    store = session.store() if dry_run else session.writable_store("remove entries")
    digests = {resolve_upper(session, store, key) for key in keys}
    records = [record for record in load_records(store) if record.digest in digests]
    pinned = [digest[:SHORT_DIGITS] for digest in sorted(digests & store.pins())]
    if pinned and not force:
        raise click.UsageError(f"pinned: {', '.join(pinned)}; unpin first, or use --force. Nothing was removed")
    shows = sys.stdin.isatty() and on_terminal() and not session.as_json
    if shows:
        shown = [
            (record.digest[:SHORT_DIGITS], record.kind, record.name or "-", format_size(record.file_bytes))
            for record in records
        ]
        print_table(("KEY", "KIND", "NAME", "SIZE"), shown, right=("SIZE",), flexible="NAME")
    if sys.stdin.isatty() and not dry_run:
        confirm(f"Remove {entries_text(len(digests))}?", yes=yes)
    if dry_run:
        if session.as_json:
            print_json({"dry_run": True, "removed": [], "would_remove": sorted(digests)})
        elif not shows:
            print_tsv((digest, "would be removed") for digest in sorted(digests))
        return
    freed_bytes = remove(store, [Eviction(record, "rm") for record in records], forced=force)
    if not force and (pinned_since := store.pins() & digests):
        note(f"pinned meanwhile and kept: {', '.join(digest[:SHORT_DIGITS] for digest in sorted(pinned_since))}")
        digests -= pinned_since
    for digest in sorted(digests):
        freed_bytes += store.remove(digest)  # entries of a newer format have no record
        store.unpin(digest)
    if session.as_json:
        print_json({"removed": sorted(digests), "freed_bytes": freed_bytes})
    else:
        print_tsv((digest, "removed") for digest in sorted(digests))
