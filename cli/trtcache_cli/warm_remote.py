"""The remotes of ``trtcache warm``: which entries they have, by listings, and uploads of what is only here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from trtcache.errors import RemoteError
from trtcache_cli.output import complain, entries_text, working

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.config.environment import Config
    from trtcache.remote.entries import RemoteEntries
    from trtcache.store.disk import DiskStore


class RemoteListing:
    """The names in the remotes of a configuration: one request for each thousand, and one for each signature.

    Attributes:
        target: the key digests in the remote that is written to, with the times of their uploads; None if there is
            none, or it cannot be listed.
    """

    def __init__(self, config: Config) -> None:
        """List the remotes. One that cannot be listed is reported, and has nothing here."""
        self.target: Mapping[str, int] | None = None
        self._remotes: list[tuple[RemoteEntries, Mapping[str, int]]] = []
        self._renewal_ns = 0
        self._config = config
        for url in () if config.disable else config.remotes.urls:
            from trtcache.remote.entries import RemoteEntries  # a plan without a remote does not need it

            remote = RemoteEntries(url, config.remotes, config.trust)
            try:
                found = {stored.digest: stored.used_ns for stored in remote.scan()}
            except RemoteError as error:
                complain(f"trtcache: warning: {error}; its entries are not counted as hits")
                continue
            self._remotes.append((remote, found))
            if url is config.remotes.target:
                self.target = found
                self._renewal_ns = url.renewal_ns(time.time_ns())

    def needs_upload(self, digest: str) -> bool:
        """Return whether an entry is not in the remote that is written to, or half of its lifetime there is over."""
        return self.target is not None and self.target.get(digest, 0) < max(1, self._renewal_ns)

    def why_not_uploaded(self, store: DiskStore, digest: str) -> str:
        """Return why an entry of a store is not uploaded to the remote that is written to; empty if it would be."""
        from trtcache.remote.tier import RemoteTier
        from trtcache.remote.uploads import uploader_of

        remotes = self._config.remotes
        if remotes.target is None:
            return ""
        uploader = uploader_of(store, RemoteTier(remotes.target, remotes, self._config.trust))
        return uploader.why_disabled or uploader.why_refused(digest)

    def serves(self, digest: str) -> bool:
        """Return whether the remote that is written to has an entry of this key, or any if none is written to.

        Without a remote, the cache directory is what others use.
        """
        if not self._config.remotes.urls or self._config.disable:
            return True
        if self._config.remotes.target is None:
            return digest in self
        return digest in (self.target or ())

    def __contains__(self, digest: object) -> bool:
        """Return whether a remote has an entry of this key."""
        return any(digest in found for _, found in self._remotes)

    def miss_reasons(self, digests: Iterable[str]) -> dict[str, str]:
        """Return the entries that no remote would serve, each with the reason; their headers are read, 32 at once."""
        left = dict.fromkeys(digests, "absent")
        for remote, found in self._remotes:
            for digest, reason in remote.miss_reasons(left.keys() & found.keys()).items():
                if reason:
                    left[digest] = reason
                else:
                    del left[digest]
        return left


def upload(cache: Cache, digests: Collection[str], *, replace: bool = False) -> None:
    """Upload entries to the remote that is written to, or renew or ``replace`` them there; wait until that is done."""
    from trtcache.remote.tier import RemoteTier
    from trtcache.remote.uploads import flush, uploader_of

    store, remotes = cache.store, cache.config.remotes
    if remotes.target is None or store is None or not digests:
        return
    uploader = uploader_of(store, RemoteTier(remotes.target, remotes, cache.config.trust))
    for digest in digests:
        uploader.offer(digest, renew=not replace, replace_=replace)
    with working(f"uploading {entries_text(len(digests))} from the cache directory"):
        flush()


def check_remote(cache: Cache, digests: Collection[str]) -> int:
    """Return the exit code of ``--require-remote``: whether the remote that is written to would serve all entries.

    An entry there that would not be served, such as one that a stranger signed, is replaced if it is here.
    """
    from trtcache.remote.entries import RemoteEntries
    from trtcache_cli.require_remote import EXIT_REMOTE_FAILED

    config = cache.config
    target = config.remotes.target
    assert target is not None  # noqa: S101  # require_usable_remote and the command have checked it
    remote = RemoteEntries(target, config.remotes, config.trust)
    try:
        found = remote.miss_reasons(digests)
        missing = sum(reason == "absent" for reason in found.values())
        bad = {digest: reason for digest, reason in found.items() if reason not in ("", "absent")}
        if here := [digest for digest in bad if not cache.layers.why_missed(digest)]:
            upload(cache, here, replace=True)
            bad |= remote.miss_reasons(here)
    except RemoteError as error:
        complain(f"trtcache: --require-remote: {error}")
        return EXIT_REMOTE_FAILED
    if missing:
        verb = "is" if missing == 1 else "are"
        complain(f"trtcache: --require-remote: {entries_text(missing)} {verb} not in {target.text}")
    reasons = Counter(reason for reason in bad.values() if reason)
    for reason, count in reasons.items():
        complain(f"trtcache: --require-remote: {entries_text(count)} in {target.text} cannot be used: {reason}")
    return EXIT_REMOTE_FAILED if missing or reasons else 0
