"""The remotes of ``trtcache warm``: which entries they have, by listings, and uploads of what is only here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trtcache.errors import RemoteError
from trtcache_cli.output import note, working

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from trtcache.cache import Cache
    from trtcache.config.environment import Config
    from trtcache.config.remotes import RemoteUrl


class RemoteListing:
    """The names in the remotes of a configuration: one request for each thousand.

    Attributes:
        target: the key digests in the remote that is written to, with the times of their uploads; None if there is
            none, or it cannot be listed.
    """

    def __init__(self, config: Config, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """List the remotes. One that cannot be listed is reported, and has nothing here."""
        self.target: Mapping[str, int] | None = None
        self._digests: set[str] = set()
        self._renewal_ns = 0
        for url in () if config.disable else config.remotes.urls:
            try:
                found = list_remote(config, url)
            except RemoteError as error:
                note(f"trtcache: warning: {error}; its entries are not counted as hits")
                continue
            self._digests |= found.keys()
            if url is config.remotes.target:
                self.target = found
                self._renewal_ns = clock_ns() - int(url.lifetime_s / 2 * 1e9) if url.lifetime_s else 0

    def needs_upload(self, digest: str) -> bool:
        """Return whether an entry is not in the remote that is written to, or half of its lifetime there is over."""
        return self.target is not None and self.target.get(digest, 0) < max(1, self._renewal_ns)

    def __contains__(self, digest: object) -> bool:
        """Return whether a remote has an entry of this key."""
        return digest in self._digests


def list_remote(config: Config, url: RemoteUrl) -> dict[str, int]:
    """Return the key digests of all entries of a remote, and the times of their uploads in nanoseconds.

    Raises:
        RemoteError: obstore is missing, a request failed, or the server cannot list.
    """
    from trtcache.remote.entries import RemoteEntries

    return {stored.digest: stored.used_ns for stored in RemoteEntries(url, config.remotes, config.trust).scan()}


def upload(cache: Cache, digests: Collection[str]) -> None:
    """Upload entries to the remote that is written to, or renew them there, and wait until that is done."""
    from trtcache.remote.tier import RemoteTier
    from trtcache.remote.uploads import flush, uploader_of

    store, remotes = cache.store, cache.config.remotes
    if remotes.target is None or store is None or not digests:
        return
    uploader = uploader_of(store, RemoteTier(remotes.target, remotes, cache.config.trust))
    for digest in digests:
        uploader.offer(digest, renew=True)
    with working(f"uploading {len(digests)} entries that were here already"):
        flush()


def check_remote(config: Config, digests: Collection[str]) -> int:
    """Return the exit code of ``--require-remote``: whether all entries are in the remote that is written to.

    Raises:
        RemoteError: it cannot be listed.
    """
    from trtcache_cli.require_remote import FAILED

    target = config.remotes.target
    assert target is not None  # noqa: S101  # open_required and the command have checked it
    missing = set(digests) - list_remote(config, target).keys()
    if not missing:
        return 0
    note(f"trtcache: --require-remote: {len(missing)} entries are not in {target.text}")
    return FAILED
