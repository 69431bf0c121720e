"""Claims, with which hosts without a shared directory agree on which of them builds a missing entry.

A claim is a small object, created before a build only if there is none, and renewed (uploaded again) every 15 s until
the entry is uploaded. Hosts that find one wait for the entry. Results never depend on claims: hosts build equivalent
entries, so a lost, late or ignored claim only costs another build. A claim that was not renewed for a minute is from a
builder that died. The first claim is ``claims/DIGEST.0``; the next builder creates ``.1``, then ``.2``: its generation.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from trtcache.config.environment import make_folders
from trtcache.config.paths import atomic_write
from trtcache.errors import RemoteError
from trtcache.store.single_flight import BuildProcess, OnWait

if TYPE_CHECKING:
    from trtcache.remote.bucket import Bucket
    from trtcache.remote.connection import Connection
    from trtcache.store.contract import Entry

T = TypeVar("T")

_logger = logging.getLogger("trtcache.remote")

DEAD_AFTER_S: Final = 60.0
"""Age of a claim from which its builder is considered dead."""
HEARTBEAT_S: Final = 15.0
LONGEST_POLL_S: Final = 15.0

_PROBE_VALID_S = 7 * 86400.0
_RELEASE_LIMIT_S = 1.0
_SLEEP_S = 0.25
_ATTEMPTS = 20
_MAX_CLAIM_BYTES = 4096


class _StoredClaim(NamedTuple):
    """A claim as the server has it, with the time of its last renewal."""

    content: bytes
    modified_ns: int


class Claim:
    """A claim that this process has won: a context manager that deletes it on exit, unless the upload does so later.

    Renewal starts in ``__enter__``. A claim that is never entered, as after Ctrl-C in between, expires after a minute.
    """

    def __init__(self, connection: Connection, names: list[str], content: bytes) -> None:
        self.is_released_by_upload = False
        self._connection, self._names, self._content = connection, names, content
        self._pid = os.getpid()
        self._released = threading.Event()
        self._heartbeat = threading.Thread(target=self._run, name="trtcache-claim", daemon=True)

    def __enter__(self) -> Claim:
        self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_released_by_upload:
            self._released.set()
            with suppress(RemoteError):
                if not self._connection.refusal(before_request=False):
                    self._connection.call(lambda _: self.release(), limit_s=_RELEASE_LIMIT_S)

    def release(self) -> None:
        """Delete the claim, and those of dead builders before it. Blocks for as long as the time-outs allow."""
        if os.getpid() != self._pid:  # a forked child has no heartbeat, and its parent holds the claim
            return
        self._released.set()
        if self._heartbeat.is_alive():
            self._heartbeat.join()  # or it might upload the claim again
        for name in self._names:
            _delete(self._connection.bucket, name)

    def _run(self) -> None:
        while not self._released.wait(HEARTBEAT_S):
            try:
                _put(self._connection.bucket, self._names[-1], self._content, replace=True)
            except RemoteError as error:
                _logger.info("cannot renew claim %s: %s", self._names[-1], error)


class Claims:
    """The claims of this process on one remote. ``denied`` is set when the server does not allow them."""

    def __init__(self, connection: Connection) -> None:
        self.denied = False
        self._connection = connection
        self._server_offset_ns: int | None = None  # the server's time minus ``_clock_ns`` of this host

    def acquire(
        self, digest: str, builder: BuildProcess, *, look_up: Callable[[], Entry | None], on_wait: OnWait
    ) -> Claim | Entry | None:
        """Return a new claim for a build, or the entry that another host has built; None: build without a claim.

        Raises:
            RemoteError: a request failed.
            Exception: any exception of ``look_up`` and ``on_wait``.
        """
        token = os.urandom(16).hex()
        content = json.dumps({"token": token, **asdict(builder)}).encode("ascii")
        began_s, generation = time.monotonic(), 0
        for _ in range(_ATTEMPTS):
            names = [f"claims/{digest}.{number}" for number in range(generation + 1)]
            if self._create(names[-1], content, token):
                with ExitStack() as stack:  # deletes the claim unless it is returned: ``push`` does not enter it
                    stack.push(claim := Claim(self._connection, names, content))
                    # Another host may have uploaded it and deleted its claim since this one missed it.
                    if (found := look_up()) is None:
                        stack.pop_all()
                        return claim
                return found
            poll_s = 1.0
            while (holder := self._read(names[-1])) is not None and self._age_s(holder.modified_ns) <= DEAD_AFTER_S:
                end_s = time.monotonic() + poll_s
                while (left_s := end_s - time.monotonic()) > 0:
                    on_wait(BuildProcess.decode(holder.content), time.monotonic() - began_s)
                    time.sleep(min(left_s, _SLEEP_S))
                if (found := look_up()) is not None:
                    return found
                poll_s = min(poll_s * 2, LONGEST_POLL_S)
            # The builder died: try the next generation. Or the claim was deleted without an entry, because the build
            # failed: start again.
            generation = 0 if holder is None else generation + 1
        return None

    def server_refuses_duplicates(self, *, again: bool = False) -> bool:
        """Return whether the server refuses to create an object that exists. Some ignore ``If-None-Match: *``.

        The answer is kept for a week in the user's cache folder; with ``again`` the server is probed in any case.

        Raises:
            RemoteError: a request failed.
        """
        probe_file = self._connection.note("claims")
        with suppress(OSError, ValueError, TypeError, KeyError):
            if not again and 0 <= time.time() - probe_file.stat().st_mtime < _PROBE_VALID_S:
                return bool(json.loads(probe_file.read_bytes()[:_MAX_CLAIM_BYTES])["excludes"])
        found = self._request(_probe)
        if not found:
            url = self._connection.url.text
            _logger.warning("%s ignores If-None-Match, so hosts cannot claim builds: claims=1 has no effect", url)
        with suppress(OSError):
            make_folders(probe_file.parent)
            with atomic_write(probe_file) as temporary:
                temporary.write_text(json.dumps({"excludes": found}))
        return found

    def _request(self, function: Callable[[Bucket], T]) -> T:
        if reason := self._connection.refusal():
            raise RemoteError(self._connection.url.text, reason, "no request is sent now")
        try:
            result = self._connection.call(function)
        except RemoteError as error:
            if error.reason == "denied":  # putting entries may still be allowed
                self.denied = True
                self._connection.breaker.note_success()  # it answers
                _logger.warning("builds are not claimed: %s; claims need s3:PutObject and s3:DeleteObject", error)
            else:
                self._connection.note_failure(error)
            raise
        self._connection.breaker.note_success()
        return result

    def _create(self, name: str, content: bytes, token: str) -> bool:
        if self._request(lambda bucket: _put(bucket, name, content)):
            return True
        # If the reply to a create is lost, its retry reports that the object exists.
        holder = self._read(name)
        return holder is not None and token.encode() in holder.content

    def _read(self, name: str) -> _StoredClaim | None:
        """Return a stored claim, None if there is none."""
        return self._request(lambda bucket: _read(bucket, name))

    def _age_s(self, modified_ns: int) -> float:
        """Return how long ago an object was put, by the server's clock. The first call uploads an object to read it."""
        if self._server_offset_ns is None:
            name = f"claims/clock-{os.urandom(16).hex()}"
            self._server_offset_ns = self._request(lambda bucket: _server_ns(bucket, name)) - _clock_ns()
        return (_clock_ns() + self._server_offset_ns - modified_ns) / 1e9


def _clock_ns() -> int:
    """Return the time since the start of this machine; ``time.monotonic`` stops while Linux is suspended."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _put(bucket: Bucket, name: str, content: bytes, *, replace: bool = False) -> bool:
    return bucket.put(name, iter([memoryview(content)]), len(content), replace=replace)


def _read(bucket: Bucket, name: str) -> _StoredClaim | None:
    try:
        found, chunks = bucket.get(name)
    except FileNotFoundError:
        return None
    content = b""
    while len(content) < _MAX_CLAIM_BYTES and (chunk := next(chunks, b"")):
        content += chunk
    return _StoredClaim(content[:_MAX_CLAIM_BYTES], found.modified_ns)


def _server_ns(bucket: Bucket, name: str) -> int:
    """Return the server's time: the modification time of a temporary object."""
    try:
        _put(bucket, name, b"")
        found = bucket.head(name)
    finally:
        _delete(bucket, name)
    if found is None:
        raise RemoteError(bucket.url.text, "error", "an object that was just uploaded does not exist")
    return found.modified_ns


def _probe(bucket: Bucket) -> bool:
    name = f"claims/probe-{os.urandom(16).hex()}"
    try:
        # If the reply is lost, the retry reports that the object exists, as in ``Claims._create``.
        if not _put(bucket, name, b"1") and ((stored := _read(bucket, name)) is None or stored.content != b"1"):
            raise RemoteError(bucket.url.text, "error", "the server reports that a new random name already exists")
        return not _put(bucket, name, b"2")
    finally:
        _delete(bucket, name)


def _delete(bucket: Bucket, name: str) -> None:
    """Delete an object. A failure is only logged: a claim that remains costs later builds of its key a request."""
    try:
        bucket.delete(name)
    except RemoteError as error:
        _logger.info("cannot delete %s: %s", name, error)
