"""``trtcache push``: upload what processes before could not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from trtcache.errors import RemoteError, SettingsError, UnknownKeyError
from trtcache_cli.output import bytes_bar, note, print_json, print_pairs
from trtcache_cli.session import Session, examples, session_options

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore


@click.command(epilog=examples("trtcache push", "trtcache push --json"))
@session_options
def push(session: Session) -> int:
    """Upload the builds that wait in the store's outbox to the remote that is written to.

    A build waits there until it is uploaded, also after its process has ended. Exits with 3 if one was not
    uploaded, and with 4 if one was damaged.
    """
    from trtcache.remote.tier import RemoteTier
    from trtcache.remote.uploads import Uploader

    config, store = session.config(), session.writable_store("upload entries")
    target = config.remotes.target
    if target is None:
        raise SettingsError("TRTCACHE_REMOTE", "no remote is written to; add ?mode=write to one")
    tier = RemoteTier(target, config.remotes, config.trust)
    sizes_bytes = {digest: _size_bytes(store, digest) for digest in store.outbox.digests()}
    waiting = len(sizes_bytes)
    if waiting and (why := tier.admission.why_not_stored()):
        raise RemoteError(target.text, "unsigned", f"{why}, and other machines would not use the entries")
    outcomes: Counter[str] = Counter()
    with bytes_bar("uploading", sum(sizes_bytes.values())) as advance:
        for digest, outcome in Uploader(store, tier).send_all():
            outcomes[outcome] += 1
            advance(sizes_bytes.get(digest, 0))
    left = len(store.outbox.digests())
    if session.as_json:
        print_json({"remote": target.text, "waiting": waiting, "outcomes": dict(outcomes), "left": left})
    elif not waiting:
        note("nothing is waiting")
    else:
        words = {
            "there": "there already",
            "gone": "pruned before",
            "unsigned": "not signed by a trusted key",
            "format": "of a newer format",
            "refused": "refused by the server",
        }
        print_pairs([("remote", target.text), *((words.get(name, name), str(n)) for name, n in outcomes.most_common())])
    if outcomes["damaged"]:
        return 4
    return 3 if outcomes["unsigned"] or left > outcomes["busy"] else 0  # another process sends those that are busy


def _size_bytes(store: DiskStore, digest: str) -> int:
    try:
        return store.stat(digest).file_bytes
    except (OSError, UnknownKeyError):
        return 0  # unreadable, or pruned since
