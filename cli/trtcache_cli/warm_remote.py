"""The remotes of ``trtcache warm``: which entries they have, by listings, and uploads of what is only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.errors import RemoteError
from trtcache_cli.output import note, working

if TYPE_CHECKING:
    from collections.abc import Collection

    from trtcache.cache import Cache
    from trtcache.config.environment import Config
    from trtcache.config.remotes import RemoteUrl


class RemoteListing:
    """The names in the remotes of a configuration: one request for each thousand.

    Attributes:
        target: the digests in the remote that is written to; None if there is none, or it cannot be listed.
    """

    def __init__(self, config: Config) -> None:
        """List the remotes. One that cannot be listed is reported, and has nothing here."""
        self.target: frozenset[str] | None = None
        self._digests: set[str] = set()
        for url in () if config.disable else config.remotes.urls:
            try:
                found = list_digests(config, url)
            except RemoteError as error:
                note(f"trtcache: warning: {error}; its entries are not counted as hits")
                continue
            self._digests |= found
            if url is config.remotes.target:
                self.target = found

    def __contains__(self, digest: object) -> bool:
        """Return whether a remote has an entry of this key."""
        return digest in self._digests


def list_digests(config: Config, url: RemoteUrl) -> frozenset[str]:
    """Return the key digests of all entries of a remote.

    Raises:
        RemoteError: obstore is missing, a request failed, or the server cannot list.
    """
    from trtcache.remote.entries import RemoteEntries

    return frozenset(stored.digest for stored in RemoteEntries(url, config.remotes, config.trust).scan())


def upload(cache: Cache, digests: Collection[str]) -> None:
    """Upload entries of the cache directory to the remote that is written to, and wait until that is done."""
    from trtcache.remote.tier import RemoteTier
    from trtcache.remote.uploads import flush, uploader_of

    store, remotes = cache.store, cache.config.remotes
    own = [digest for digest in digests if store is not None and store.contains(digest)]
    if remotes.target is None or store is None or not own:
        return
    uploader = uploader_of(store, RemoteTier(remotes.target, remotes, cache.config.trust))
    for digest in own:
        uploader.offer(digest)
    with working(f"uploading {len(own)} entries that were only here"):
        flush()


def check_remote(config: Config, digests: Collection[str]) -> int:
    """Return the exit code of ``--require-remote``: whether all entries are in the remote that is written to.

    Raises:
        RemoteError: it cannot be listed.
    """
    from trtcache_cli.require_remote import FAILED

    target = config.remotes.target
    assert target is not None  # noqa: S101  # open_required and the command have checked it
    missing = set(digests) - list_digests(config, target)
    if not missing:
        return 0
    note(f"trtcache: --require-remote: {len(missing)} entries are not in {target.text}")
    return FAILED
