"""``trtcache pin`` and ``trtcache unpin``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trtcache.errors import UnknownKeyError
from trtcache_cli.keys import KeyType, LowerKeyError, resolve_upper
from trtcache_cli.output import print_json, print_tsv
from trtcache_cli.session import Session, examples, session_options

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore


@click.command(epilog=examples("trtcache ls -q -f name~bert | xargs -r trtcache pin"))
@click.argument("keys", nargs=-1, required=True, type=KeyType(), metavar="KEY...")
@session_options
def pin(session: Session, keys: tuple[str, ...]) -> None:
    """Protect entries: prune never removes them, and clean and rm only if asked to."""
    _set_pins(session, keys, pinned=True)


@click.command(epilog=examples("trtcache ls -q -f pinned=yes | xargs -r trtcache unpin"))
@click.argument("keys", nargs=-1, required=True, type=KeyType(), metavar="KEY...")
@session_options
def unpin(session: Session, keys: tuple[str, ...]) -> None:
    """Allow pruning of entries again."""
    _set_pins(session, keys, pinned=False)


def _set_pins(session: Session, keys: tuple[str, ...], *, pinned: bool) -> None:
    store = session.writable_store("pin" if pinned else "unpin")
    digests = [resolve_upper(session, store, key) if pinned else _resolve_pin(session, store, key) for key in keys]
    for digest in digests:
        (store.pin if pinned else store.unpin)(digest)
    if session.as_json:
        print_json({"keys": digests, "pinned": pinned})
    else:
        print_tsv((digest, "pinned" if pinned else "not pinned") for digest in digests)


def _resolve_pin(session: Session, store: DiskStore, key: str) -> str:
    """Return the digest of a key in the cache directory, or of the one pin there whose entry is gone."""
    try:
        return resolve_upper(session, store, key)
    except (UnknownKeyError, LowerKeyError):
        prefix = key.lower().removeprefix("b3:")
        matches = [digest for digest in store.pins() if prefix and digest.startswith(prefix)]
        if len(matches) != 1:
            raise
        return matches[0]
