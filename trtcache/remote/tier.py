"""Look-ups in a remote, and offers of new entries to it. A failure of any kind is a miss or an entry that stays here.

One object is one entry, in the format of a store's files, named by its key. Signatures are required, whatever the
directory above asks for: the header is judged before the rest is fetched, and what arrived is verified before it is
published in the store, where it is read as any other entry is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trtcache.errors import (
    BusyError,
    CorruptBlobError,
    FormatVersionError,
    RemoteError,
    SettingsError,
    StoreError,
    UntrustedEntryError,
)
from trtcache.remote.bucket import ARCHIVED
from trtcache.remote.connection import Download, connect
from trtcache.store.contract import REMOTE, Entry, Miss, entry_of, is_companion, miss_reason
from trtcache.store.signatures import Admission
from trtcache.store.single_flight import BuildProcess, WaitReporter
from trtcache.store.writer import IncomingFile

if TYPE_CHECKING:
    from trtcache.config.environment import Config
    from trtcache.config.remotes import RemoteSettings, RemoteUrl
    from trtcache.config.signing_keys import Trust
    from trtcache.config.units import ContentionPolicy
    from trtcache.digests import CacheKey
    from trtcache.remote.claims import Claim, Claims
    from trtcache.store.disk import DiskStore
    from trtcache.store.format import EntryHeader

_logger = logging.getLogger("trtcache.remote")

LOCAL_KINDS: Final = frozenset({"direct-why", "runtime_cache", "timing_cache"})
"""Kinds that stay on their machine: reasons of misses, and measurements of its GPU."""

LONGEST_WAIT_S: Final = 3600.0
"""Longest wait for a claim of another host, where no shorter limit is set: a claim can be forged, and put again."""

_REMEMBERED_S = 60.0
_MOST_REMEMBERED = 10_000
_LEAST_S = 2.0


def object_name(digest: str) -> str:
    """Return the name of an entry's object, below the remote's prefix."""
    return f"entries/v1/{digest[:2]}/{digest}.trtc"


class RemoteTier:
    """One remote of one cache. It remembers for a minute what the remote does not have, in memory only.

    Attributes:
        rejected: keys of objects that were read and do not count.
        aged: keys of hits for which half of the remote's lifetime is over.
    """

    def __init__(
        self,
        url: RemoteUrl,
        settings: RemoteSettings,
        trust: Trust,
    ) -> None:
        self.url, self.settings = url, settings
        self.connection = connect(url, settings)
        self.trust = trust
        self._admission: Admission | None = None
        self._missed: dict[str, tuple[float, str]] = {}
        self.rejected: set[str] = set()
        self.aged: set[str] = set()

    @property
    def stores(self) -> bool:
        """Whether what arrives may be stored. Not with signatures off: a private store would vouch for it."""
        return self.trust.required is not False

    @property
    def admission(self) -> Admission:
        """The signature rules.

        Raises:
            SettingsError: the signing key cannot be read, or ``cryptography`` is not installed.
        """
        if self._admission is None:
            self._admission = Admission.of(self.trust, shared=True, writable=self.url.writable, clock_ns=time.time_ns)
        return self._admission

    def fetch(self, key: CacheKey, upper: DiskStore | None) -> Entry | Miss | None:
        """Fetch an entry with one request, and publish it in ``upper``.

        Return None if it is there now, the entry itself if it cannot be stored there, or the reason for a miss:
        ``absent``, ``open`` (the breaker), ``untrusted:...``, ``corrupt:...``, or that of a RemoteError. A miss is
        remembered for a minute with its reason.
        """
        if key.kind in LOCAL_KINDS:
            return Miss("local")
        until_s, reason = self._missed.get(key.digest, (0.0, ""))
        if until_s > time.monotonic():
            return Miss(reason)
        if reason := self._refusal():
            if upper is not None:
                upper.events.append("remote_skip", reason=f"{self.url.label} {reason}", kind=key.kind, key=key.digest)
            return Miss(reason)
        began_s = time.monotonic()
        found = self._fetch(key, upper)
        took_s = time.monotonic() - began_s
        reason, size_bytes, saved_s = "", 0, 0.0
        if isinstance(found, Miss):
            reason = found.reason
            if len(self._missed) >= _MOST_REMEMBERED:
                self._missed.clear()
            self._missed[key.digest] = (time.monotonic() + _REMEMBERED_S, reason)
        else:
            header, entry = found
            size_bytes, saved_s = header.file_bytes, max(0.0, header.build_s - took_s)
        _logger.debug("%s %s: %s in %.0f ms", self.url.text, key.digest[:16], reason or "hit", took_s * 1e3)
        if upper is not None:
            event, text = ("remote_miss", f"{self.url.label} {reason}") if reason else ("remote_hit", self.url.label)
            seconds = {"waited_s": took_s, "saved_s": saved_s}
            upper.events.append(event, reason=text, kind=key.kind, key=key.digest, size_bytes=size_bytes, **seconds)
        if isinstance(found, Miss):
            return found
        return None if entry is None else replace(entry, load_s=took_s)

    def forget(self, digest: str) -> None:
        """Ask for an entry again, although it was missing."""
        self._missed.pop(digest, None)

    def reason(self, digest: str) -> str:
        """Return the reason of the last miss of an entry, or why the remote was not asked."""
        return self._missed.get(digest, (0.0, ""))[1] or self._refusal(before_request=False)

    def _refusal(self, *, before_request: bool = True) -> str:
        if not self.connection.off:
            try:
                if self.admission.required and not self.admission.keys:
                    self.connection.stop("no-trusted-key", "signatures are required")
            except SettingsError as error:
                self.connection.stop("not-installed", str(error))
        return self.connection.refusal(before_request=before_request)

    def _fetch(self, key: CacheKey, upper: DiskStore | None) -> tuple[EntryHeader, Entry | None] | Miss:
        """Return the header of an entry and the entry itself, None if that was stored; or why there is none."""
        where = f"{self.url.text}/{object_name(key.digest)}"
        try:
            return self._download(key, upper, where)
        except RemoteError as error:
            if error.reason != ARCHIVED:
                self.connection.note_failure(error)
                return Miss(error.reason)
            missed = Miss(ARCHIVED)
            _logger.info("%s", error)
        except (UntrustedEntryError, FormatVersionError) as error:
            missed = Miss(miss_reason(error))
            _logger.info("%s", error)
        except CorruptBlobError as error:
            # Three in a row: a proxy that answers everything with a page of its own, or a damaged path.
            self.rejected.add(key.digest)
            self.connection.note_failure(RemoteError(self.url.text, "corrupt", error.why))
            # The error of a damaged member names the temporary file.
            _logger.warning("%s; it will be built", CorruptBlobError(where, error.reason, error.why))
            return Miss(miss_reason(error))
        except (OSError, StoreError, SettingsError) as error:
            _logger.warning("%s was not stored: %s", where, error)
            return Miss("unstored")
        # The server answered, so the breaker closes; only the object does not count. A build replaces it.
        if missed.reason != "format":
            self.rejected.add(key.digest)
        self.connection.breaker.note_success()
        return missed

    def _download(self, key: CacheKey, upper: DiskStore | None, where: str) -> tuple[EntryHeader, Entry | None] | Miss:
        admit, began_s = self.admission.admit(where), time.monotonic()
        download = Download(self.connection.bucket, object_name(key.digest))
        try:
            size_bytes = download.size(self.settings.timeout_s)
            if size_bytes is None:
                self.connection.note_success(took_s=time.monotonic() - began_s)
                return Miss("absent")
            download.limit(self.settings.timeout_s)
            file = IncomingFile.open(download.chunks(), size_bytes, key, where=where, admit=admit)
            # A download that takes longer than half of the build is not worth waiting for.
            download.limit(max(_LEAST_S, file.header.build_s / 2), rest_bytes=size_bytes - len(file.received))
            if upper is not None and upper.writable and self.stores:
                upper.receive(file)
                entry = None
            else:
                contents = file.load(admit)
                entry = entry_of(file.header, contents, path=None, outcome="hit")
            # A hit is worth its time, however slow the answer was, if the build took longer.
            self.connection.note_success(took_s=time.monotonic() - began_s, saved_s=file.header.build_s)
            if 0 < download.modified_ns < self.url.renewal_ns(time.time_ns()):
                self.aged.add(key.digest)
            return file.header, entry
        finally:
            download.abandon()


class RemoteTiers:
    """All remotes of one cache, in the order in which they are asked."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tiers = tuple(RemoteTier(url, config.remotes, config.trust) for url in config.remotes.urls)
        self._target = next((tier for tier in self._tiers if tier.url.writable), None)
        self._claims: Claims | None = None
        self._has_engine = False

    def fetch(self, key: CacheKey, upper: DiskStore | None) -> Entry | bool:
        """Fetch an entry from the first remote that has a sound one.

        Return True if it is in ``upper`` now, the entry if it cannot be stored there, or False.
        """
        for tier in self._tiers:
            found = tier.fetch(key, upper)
            if not isinstance(found, Miss):
                self._has_engine = True
                if found is None and upper is not None and tier is self._target and key.digest in tier.aged:
                    from trtcache.remote.uploads import uploader_of

                    uploader_of(upper, tier).offer(key.digest, renew=True)
                return True if found is None else replace(found, origin=REMOTE)
        return False

    def reasons(self, digest: str) -> tuple[str, ...]:
        """Return the reasons of the last misses of an entry, each with its remote's URL."""
        found = ((tier.url.text, tier.reason(digest)) for tier in self._tiers)
        return tuple(f"{url}: {'breaker open' if reason == 'open' else reason}" for url, reason in found if reason)

    def claim(
        self,
        store: DiskStore,
        key: CacheKey,
        *,
        name: str,
        busy: ContentionPolicy,
        waited_s: float,
        look_up: Callable[[], Entry | None],
    ) -> Claim | Entry | None:
        """Claim the build of an entry, or return the entry that another host has built meanwhile.

        Return None to build without a claim: they are off, the server ignores or refuses them, or it fails. ``look_up``
        looks the entry up; ``waited_s`` is how long this process has waited already.

        Raises:
            BusyError: another host has held the claim for as long as ``busy`` allows to wait.
            BuildCancelledError: a watcher cancelled the wait.
        """
        tier = self._target
        if tier is None or not tier.url.claims or key.kind in LOCAL_KINDS or key.digest in tier.rejected:
            return None
        from trtcache.remote.claims import Claims
        from trtcache.remote.uploads import uploader_of

        if self._claims is None:
            self._claims = Claims(tier.connection)
        claims, this_process = self._claims, BuildProcess.here(kind=key.kind, name=name)
        if claims.denied or uploader_of(store, tier).why_disabled:
            return None
        report, waited = WaitReporter(key, busy), 0.0
        patience_s = LONGEST_WAIT_S if busy.patience_s is None else busy.patience_s

        def on_wait(builder: BuildProcess | None, since_s: float) -> None:
            nonlocal waited
            waited = since_s
            if waited_s + since_s >= patience_s:
                raise BusyError(key.kind, key.digest, str(builder or ""), waited_s + since_s)
            report(builder, since_s)

        def look_up_again() -> Entry | None:
            tier.forget(key.digest)
            return look_up()

        try:
            if claims.server_refuses_duplicates():
                return claims.acquire(key.digest, this_process, look_up=look_up_again, on_wait=on_wait)
        except RemoteError as error:
            _logger.info("building %s without a claim: %s", key.digest[:16], error)
        finally:
            if waited:
                store.events.append("wait", reason="remote", kind=key.kind, key=key.digest, waited_s=waited)
        return None

    def offer(self, store: DiskStore, entry: Entry, claim: Claim | None = None) -> None:
        """Upload a new entry in the background, if builds are uploaded and this one took long enough.

        A claimed one is uploaded in any case, as other hosts may wait for it, and its claim is released after that. Key
        aliases go with their engine: they are uploaded once this cache had to do with an engine of the remote.
        """
        tier = self._target
        if tier is None or entry.path is None or entry.kind in LOCAL_KINDS:
            return
        goes_along = claim is not None or (is_companion(entry.kind) and self._has_engine)
        if entry.build_s < self._config.remotes.min_build_s and not goes_along:
            return
        self._has_engine = True
        from trtcache.remote.uploads import uploader_of  # look-ups do not need it

        uploader_of(store, tier).offer(entry.key.digest, replace_=entry.key.digest in tier.rejected, claim=claim)
