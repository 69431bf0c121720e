"""``trtcache rm``: remove entries by key."""

from __future__ import annotations

import click

from trtcache.store.catalog import load_records
from trtcache.store.gc import Eviction, remove
from trtcache_cli.keys import SHORT, KeyType
from trtcache_cli.output import print_json, print_tsv
from trtcache_cli.session import Session, examples, pass_session, session_options


@click.command(epilog=examples("trtcache rm 3fa9 b771", "trtcache ls -q -f 'unused>30d' | xargs trtcache rm"))
@click.argument("keys", nargs=-1, required=True, type=KeyType(), metavar="KEY...")
@click.option("--force", is_flag=True, help="Remove pinned entries too.")
@session_options
@pass_session
def rm(session: Session, keys: tuple[str, ...], force: bool) -> None:
    """Remove entries by key. All keys are resolved before anything is removed."""
    store = session.writable_store("remove entries")
    digests = {store.resolve(key) for key in keys}
    doomed = [record for record in load_records(store) if record.digest in digests]
    pinned = [record.digest[:SHORT] for record in doomed if record.pinned]
    if pinned and not force:
        raise click.UsageError(f"pinned: {', '.join(pinned)}; unpin first, or use --force. Nothing was removed")
    freed_bytes = remove(store, [Eviction(record, "rm") for record in doomed])
    for digest in sorted(digests):
        freed_bytes += store.remove(digest)  # entries of a newer format have no record
        store.unpin(digest)
    if session.as_json:
        print_json({"removed": sorted(digests), "freed_bytes": freed_bytes})
    else:
        print_tsv((digest, "removed") for digest in sorted(digests))
