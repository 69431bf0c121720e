"""Claims: of all hosts that miss an entry, one builds it, without a directory that they share.

A claim is a small object, created before a build only if there is none, and put again every 15 s until the entry is
uploaded. Hosts that find one wait for the entry. A claim saves builds and is never needed for right answers: any sound
entry is right, so a claim that is lost, late or ignored costs one more build. An old claim belongs to a builder that
died; the next builder creates one of the next generation.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from trtcache.config.environment import make_folders
from trtcache.config.paths import atomic_write
from trtcache.errors import RemoteError
from trtcache.store.single_flight import BuildProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.remote.bucket import Bucket
    from trtcache.remote.connection import Connection
    from trtcache.store.entry import Entry

T = TypeVar("T")

_logger = logging.getLogger("trtcache.remote")

ALIVE_S: Final = 60.0
"""Age of a claim from which its builder counts as dead."""
HEARTBEAT_S: Final = 15.0
LONGEST_POLL_S: Final = 15.0

_PROBED_S = 7 * 86400.0
_RELEASE_S = 1.0
_SLICE_S = 0.25
_ATTEMPTS = 20
_MOST_BYTES = 4096

OnWait: TypeAlias = "Callable[[BuildProcess | None, float], object]"
"""Callback for waiters: the process that builds, and the seconds waited so far. An exception ends the wait."""


class Claim:
    """A claim that this process has won. Leaving it as a context releases it, unless an upload is to do so."""

    def __init__(self, connection: Connection, names: list[str], content: bytes) -> None:
        self.goes_with_upload = False
        self._connection, self._names, self._content = connection, names, content
        self._pid = os.getpid()
        self._released = threading.Event()
        self._heartbeat = threading.Thread(target=self._run, name="trtcache-claim", daemon=True)
        self._heartbeat.start()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.goes_with_upload:
            self._released.set()
            with suppress(RemoteError):
                if not self._connection.refusal():
                    self._connection.call(lambda _: self.release(), limit_s=_RELEASE_S)

    def release(self) -> None:
        """Delete the claim, and those of dead builders before it. Blocks for as long as the time-outs allow."""
        if os.getpid() != self._pid:  # a forked child has no heartbeat, and its parent holds the claim
            return
        self._released.set()
        self._heartbeat.join()  # or it might put the claim again
        for name in self._names:
            _delete(self._connection.bucket, name)

    def _run(self) -> None:
        while not self._released.wait(HEARTBEAT_S):
            try:
                _put(self._connection.bucket, self._names[-1], self._content, replace=True)
            except RemoteError as error:
                _logger.info("claim %s is not renewed: %s", self._names[-1], error)


class Claims:
    """The claims of this process on one remote. ``denied`` is set when the server does not allow them."""

    def __init__(self, connection: Connection) -> None:
        self.denied = False
        self._connection = connection
        self._server_ahead_ns: int | None = None

    def acquire(
        self, digest: str, who: BuildProcess, *, look: Callable[[], Entry | None], on_wait: OnWait
    ) -> Claim | Entry | None:
        """Return a new claim for a build, or the entry that another host has built; None: build without a claim.

        Raises:
            RemoteError: a request failed.
            Exception: any exception of ``look`` and ``on_wait``.
        """
        token = os.urandom(16).hex()
        content = json.dumps({"token": token, **asdict(who)}).encode("ascii")
        began_s, generation = time.monotonic(), 0
        for _ in range(_ATTEMPTS):
            names = [f"claims/{digest}.{number}" for number in range(generation + 1)]
            if self._create(names[-1], content, token):
                with ExitStack() as stack:
                    claim = stack.enter_context(Claim(self._connection, names, content))
                    # Another host may have uploaded it and deleted its claim since this one missed it.
                    if (found := look()) is None:
                        stack.pop_all()
                        return claim
                return found
            poll_s = 1.0
            while (other := self._read(names[-1])) is not None and self._age_s(other[1]) <= ALIVE_S:
                end_s = time.monotonic() + poll_s
                while (left_s := end_s - time.monotonic()) > 0:
                    on_wait(BuildProcess.decode(other[0]), time.monotonic() - began_s)
                    time.sleep(min(left_s, _SLICE_S))
                if (found := look()) is not None:
                    return found
                poll_s = min(poll_s * 2, LONGEST_POLL_S)
            # Its builder died, or it was released without an entry: that build failed.
            generation = 0 if other is None else generation + 1
        return None

    def excludes(self, *, again: bool = False) -> bool:
        """Return whether of two creates of one name the second is refused: some servers accept and ignore conditions.

        The answer is kept for a week in the user's cache folder, or probed ``again``.

        Raises:
            RemoteError: a request failed.
        """
        note = self._connection.note("claims")
        with suppress(OSError, ValueError, TypeError, KeyError):
            if not again and 0 <= time.time() - note.stat().st_mtime < _PROBED_S:
                return bool(json.loads(note.read_bytes()[:_MOST_BYTES])["excludes"])
        found = self._ask(_probe)
        if not found:
            url = self._connection.url.text
            _logger.warning("%s ignores conditions, so hosts cannot claim builds: claims=1 has no effect", url)
        with suppress(OSError):
            make_folders(note.parent)
            with atomic_write(note) as temporary:
                temporary.write_text(json.dumps({"excludes": found}))
        return found

    def _ask(self, function: Callable[[Bucket], T]) -> T:
        if reason := self._connection.refusal():
            raise RemoteError(self._connection.url.text, reason, "it is not asked now")
        try:
            result = self._connection.call(function)
        except RemoteError as error:
            if error.reason == "denied":  # entries may be allowed all the same
                self.denied = True
                _logger.warning("builds are not claimed: %s; claims need s3:PutObject and s3:DeleteObject", error)
            else:
                self._connection.note_failure(error)
            raise
        self._connection.breaker.note_success()
        return result

    def _create(self, name: str, content: bytes, token: str) -> bool:
        if self._ask(lambda bucket: _put(bucket, name, content)):
            return True
        # The reply to a create may be lost, and the one to its repetition says that the object exists.
        other = self._read(name)
        return other is not None and token.encode() in other[0]

    def _read(self, name: str) -> tuple[bytes, int] | None:
        """Return a claim's content and time, None if there is none."""
        return self._ask(lambda bucket: _read(bucket, name))

    def _age_s(self, modified_ns: int) -> float:
        """Return how long ago an object was put, by the server's clock."""
        if self._server_ahead_ns is None:
            name = f"claims/clock-{os.urandom(16).hex()}"
            self._server_ahead_ns = self._ask(lambda bucket: _clock_ns(bucket, name)) - time.monotonic_ns()
        return (time.monotonic_ns() + self._server_ahead_ns - modified_ns) / 1e9


def _put(bucket: Bucket, name: str, content: bytes, *, replace: bool = False) -> bool:
    return bucket.put(name, iter([memoryview(content)]), len(content), replace=replace)


def _read(bucket: Bucket, name: str) -> tuple[bytes, int] | None:
    try:
        found, chunks = bucket.open(name)
    except FileNotFoundError:
        return None
    content = b""
    while len(content) < _MOST_BYTES and (chunk := next(chunks, b"")):
        content += chunk
    return content[:_MOST_BYTES], found.modified_ns


def _clock_ns(bucket: Bucket, name: str) -> int:
    """Return the server's time: that of an object which is put and deleted for it."""
    _put(bucket, name, b"")
    found = bucket.head(name)
    _delete(bucket, name)
    if found is None:
        raise RemoteError(bucket.url.text, "error", "an object that was put is missing")
    return found.modified_ns


def _probe(bucket: Bucket) -> bool:
    name = f"claims/probe-{os.urandom(16).hex()}"
    try:
        if not _put(bucket, name, b"1"):
            raise RemoteError(bucket.url.text, "error", "a new object is said to exist")
        return not _put(bucket, name, b"2")
    finally:
        _delete(bucket, name)


def _delete(bucket: Bucket, name: str) -> None:
    """Delete an object. One that remains is garbage, which costs a request at the next build of its key."""
    try:
        bucket.delete(name)
    except RemoteError as error:
        _logger.info("%s is not deleted: %s", name, error)
