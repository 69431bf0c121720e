"""Uploads of new entries to a remote: a thread in the background, an outbox that survives the process, and a flush.

A build never waits for its upload. What was not sent when the process exits stays in the store's outbox, and is sent by
the next process that uploads, or by ``trtcache push``.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from trtcache.errors import (
    CorruptBlobError,
    FormatVersionError,
    RemoteError,
    SettingsError,
    StoreError,
    UnknownKeyError,
    UntrustedEntryError,
)
from trtcache.remote.bucket import REFUSED, Bucket, open_bucket
from trtcache.remote.tier import RemoteTier, object_name
from trtcache.store.parallel import call_in_thread
from trtcache.store.reader import ArtifactFile

if TYPE_CHECKING:
    from trtcache.config.remotes import RemoteUrl
    from trtcache.config.signing_keys import Trust
    from trtcache.remote.claims import Claim
    from trtcache.store.disk import DiskStore

_logger = logging.getLogger("trtcache.remote")

Outcome: TypeAlias = str
"""``sent``, ``there`` (on the remote), ``gone`` (pruned here), ``damaged``, ``unsigned``, ``busy`` (being sent).

Of one entry that stays in the outbox, also ``format`` (a newer one), ``unreadable``, and ``refused`` by the server.
"""

_FAILED = ("format", "unreadable", REFUSED)

_UPLOADERS: dict[tuple[str, RemoteUrl, Trust], Uploader] = {}


def uploader_of(store: DiskStore, tier: RemoteTier) -> Uploader:
    """Return the one uploader of this process from a store to a remote."""
    name = (store.location, tier.url, tier.trust)
    if name not in _UPLOADERS:
        uploader = Uploader(store, tier)
        if _UPLOADERS.setdefault(name, uploader) is uploader:  # another thread may have been faster
            atexit.register(uploader.finish)
    return _UPLOADERS[name]


def own_uploads(store: DiskStore) -> tuple[set[str], Counter[str]]:
    """Return the key digests of a store's entries that this process has offered, and why uploads of them failed."""
    offered: set[str] = set()
    failures: Counter[str] = Counter()
    for (location, *_), uploader in list(_UPLOADERS.items()):
        if location == store.location:
            offered |= uploader.offered
            failures += uploader.failures
    return offered, failures


def flush(timeout_s: float | None = None) -> int:
    """Wait until the uploads of this process are done, for at most ``timeout_s`` seconds; return how many are not.

    What is left stays in the outbox of its store.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    left = 0
    for uploader in list(_UPLOADERS.values()):
        left += uploader.flush(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
    return left


class Uploader:
    """Uploads from the outbox of one store to one remote.

    Attributes:
        offered: the key digests of the entries that this process has offered; others wait in the outbox, too.
        failures: why uploads of these failed.
        why_disabled: why nothing is uploaded; None if it is.
    """

    def __init__(self, store: DiskStore, tier: RemoteTier) -> None:
        self._store, self._tier, self._connection = store, tier, tier.connection
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._replace: set[str] = set()
        self._renew: set[str] = set()
        self._claims: dict[str, Claim] = {}
        self._thread: threading.Thread | None = None
        self._bucket: Bucket | None = None
        self._failed: set[str] = set()
        self.offered: set[str] = set()
        self.failures: Counter[str] = Counter()
        self.why_disabled = self._why_disabled()

    def _why_disabled(self) -> str | None:
        """Return why entries of this process would not be used by others, and log it once."""
        try:
            why = self._tier.admission.why_not_stored()
        except SettingsError as error:
            why = str(error)
        if why:
            _logger.warning("nothing is uploaded to %s: %s; see 'trtcache trust'", self._tier.url.text, why)
        return why

    def offer(self, digest: str, *, replace_: bool = False, renew: bool = False, claim: Claim | None = None) -> None:
        """Put an entry into the outbox, and upload it in the background; release its ``claim`` after that.

        ``replace_`` overwrites an unusable object, and ``renew`` one of which half of the lifetime is over.
        """
        if why := self.why_disabled or self.why_refused(digest):
            _logger.info("entry %s is not uploaded: %s", digest[:16], why)
            return
        self.offered.add(digest)
        try:
            if not self._store.outbox.add(digest):
                self._note("upload_failed", "full", digest)
                return
        except OSError as error:
            _logger.warning("entry %s is not uploaded: %s", digest[:16], error)
            self._note("upload_failed", "outbox", digest)
            return
        if os.getpid() != self._pid:
            return  # a forked child has no thread; the next process sends it
        with self._changed:
            if self._thread is None:
                # Entries that earlier processes left in the outbox go first.
                self._waiting += [left for left in self._store.outbox.digests() if left != digest]
                self._thread = threading.Thread(target=self._run, name="trtcache-upload", daemon=True)
                self._thread.start()
            self._waiting.append(digest)
            if replace_:
                self._replace.add(digest)
            if renew:
                self._renew.add(digest)
            if claim is not None:
                self._claims[digest], claim.is_released_by_upload = claim, True
            self._changed.notify_all()

    def why_refused(self, digest: str) -> str:
        """Return why an entry of the store would not be used by others, by its header; empty if it would."""
        admission = self._tier.admission
        if not admission.required:
            return ""
        try:
            reason = self._store.verdict(digest).reason
        except (StoreError, OSError) as error:
            # The upload finds that too, and notes it.
            _logger.debug("entry %s: %s", digest[:16], error)
            return ""
        return f"untrusted:{reason}" if reason else ""

    def flush(self, timeout_s: float | None) -> int:
        """Wait for the uploads; return how many are not done."""
        if os.getpid() != self._pid:
            return 0
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, timeout_s)
            return len(self._waiting)

    def finish(self) -> None:
        """At exit, wait for as long as ``TRTCACHE_REMOTE_FLUSH`` says, and warn of what was not sent."""
        if left := self.flush(self._tier.settings.flush_s) + len(self._failed):
            _logger.warning("uploads to %s are left (%d): trtcache push", self._tier.url.text, left)

    def send_all(self) -> Iterator[tuple[str, Outcome]]:
        """Send everything in the outbox now, and yield each digest with its outcome.

        Raises:
            RemoteError: the remote rejects all entries; the rest stays in the outbox.
        """
        for digest in self._store.outbox.digests():
            yield digest, call_in_thread(partial(self._send, digest))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                digest, outcome = self._waiting[0], ""
            try:
                reason = self._connection.refusal()
                if not reason:
                    outcome = self._send(digest)
            except RemoteError as error:
                reason = error.reason
                if reason == "unsupported":  # such as a web server that is read only: look-ups go on
                    self.why_disabled = error.why
                    _logger.warning("nothing is uploaded to %s: %s", self._tier.url.text, error.why)
                else:
                    self._connection.note_failure(error)
                self._note("upload_failed", reason, digest)
            except (OSError, StoreError) as error:
                reason = ""
                _logger.warning("entry %s is not uploaded: %s", digest[:16], error)
            except BaseException as error:  # noqa: BLE001  # such as a panic of the library; flush() waits for this thread
                reason = "error"
                _logger.warning("entry %s is not uploaded: %s: %s", digest[:16], type(error).__name__, error)
                self._note("upload_failed", reason, digest)
            with self._changed:
                # A remote that does not answer is not tried with the rest: all of it stays in the outbox.
                done = self._waiting[: len(self._waiting) if reason else 1]
                claims = [self._claims.pop(digest) for digest in done if digest in self._claims]
                if reason or outcome in _FAILED:
                    self._failed.update(done)
                else:
                    self._failed.difference_update(done)
            for claim in claims:
                claim.release()
            with self._changed:
                del self._waiting[: len(done)]
                self._changed.notify_all()

    def _send(self, digest: str) -> Outcome:
        outbox = self._store.outbox
        with outbox.hold(digest) as is_holder:
            if not is_holder:
                return "busy"
            start_s, size_bytes = time.monotonic(), 0
            try:
                outcome = self._upload(digest)
            except CorruptBlobError as error:
                _logger.warning("%s; it is not uploaded", error)
                self._note("upload_failed", "damaged", digest)
                outcome = "damaged"
            except (FormatVersionError, OSError, RemoteError) as error:
                if isinstance(error, RemoteError) and error.reason != REFUSED:
                    raise
                outcome = "format" if isinstance(error, FormatVersionError) else "unreadable"
                if isinstance(error, RemoteError):
                    outcome = REFUSED
                    self._note("upload_failed", REFUSED, digest)
                _logger.warning("entry %s is not uploaded: %s", digest[:16], error)
            if outcome in _FAILED:
                outbox.postpone(digest)
            elif outcome != "unsigned":  # a process that trusts its signer will send it
                outbox.remove(digest)
            if outcome in ("sent", "there"):
                self._connection.breaker.note_success()
            if outcome == "sent":
                with suppress(UnknownKeyError):  # pruned meanwhile
                    size_bytes = self._store.stat(digest).file_bytes
                self._note("upload", "", digest, took_s=time.monotonic() - start_s, size_bytes=size_bytes)
        return outcome

    def _upload(self, digest: str) -> Outcome:
        store, path = self._store, self._store.path(digest)
        try:
            file = ArtifactFile(path, shared=store.shared, admit=self._tier.admission.admit(str(path)))
        except FileNotFoundError:
            return "gone"
        except UntrustedEntryError:
            return "unsigned"
        try:
            file.verify_stored()
            if file.header.key.digest != digest:
                raise CorruptBlobError(str(path), "key", "it is the entry of another key")
            if self._bucket is None:
                self._bucket = open_bucket(self._tier.url, self._tier.settings, patient=True)
            name, replace_ = object_name(digest), digest in self._replace
            if digest in self._renew:
                # It is in use, so the bucket's rules must not delete it. S3 refuses to copy an object onto itself.
                self._renew.discard(digest)
                found = self._bucket.head(name)
                if found is not None and found.modified_ns >= self._tier.url.renewal_ns(time.time_ns()):
                    return "there"  # another writer was faster
                replace_ = True
            sent = self._bucket.put(name, file.chunks(), file.stat.st_size, replace=replace_)
        finally:
            file.close()
        return "sent" if sent else "there"

    def _note(self, event: str, reason: str, digest: str, *, took_s: float = 0.0, size_bytes: int = 0) -> None:
        if event == "upload_failed" and digest in self.offered:
            self.failures[reason] += 1
        text = f"{self._tier.url.label} {reason}".strip()
        self._store.events.append(event, reason=text, key=digest, waited_s=took_s, size_bytes=size_bytes)
