"""Connection of this process to one remote, and the circuit breaker that all processes of this user on this host share.

After a failure, no request is sent for 30 s, then for twice as long, up to 10 minutes. When the time is over, one
request is let through; its success closes the breaker. The breaker's file has no effect on answers: a damaged file is
treated as missing.

obstore's calls neither notice signals nor end before their time-outs, and a server that sends a byte a second never
runs into one. So each download runs in a thread of its own, and its caller waits on a queue with a deadline.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trtcache.config.environment import make_folders
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import atomic_write, cache_folder
from trtcache.digests import hash_bytes
from trtcache.errors import RemoteError
from trtcache.remote import bucket

if TYPE_CHECKING:
    from mmap import mmap

    from trtcache.config.remotes import RemoteSettings, RemoteUrl
    from trtcache.remote.bucket import Bucket


FIRST_S: Final = 30.0
LONGEST_S: Final = 600.0
IN_A_ROW: Final = 3
"""Consecutive failures that open the breaker, for errors that may be accidental: a refused request, a slow answer."""

_PROBE_S = 10.0
_MOST_BYTES = 4096


@frozen_dataclass
class BreakerState:
    """``until_s`` is the time (since 1970) up to which nothing is asked, 0 while it is closed."""

    until_s: float = 0.0
    wait_s: float = 0.0
    failures: int = 0
    why: str = ""


class Breaker:
    """The breaker kept in the file ``path``, or in memory where that cannot be written."""

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.time) -> None:
        self._path, self._clock_s = path, clock_s
        self._state = BreakerState()
        self._in_memory = False

    def read(self) -> BreakerState:
        """Return the current state."""
        if not self._in_memory:
            self._state = self._load()
        return self._state

    def is_open(self) -> bool:
        """Return whether requests are held back now."""
        state, now_s = self.read(), self._clock_s()
        return now_s < state.until_s <= now_s + LONGEST_S  # or the clock was set back

    def admits(self) -> bool:
        """Return whether a request may be sent: the breaker is closed, or the caller tries again after the wait."""
        if self.is_open():
            return False
        if self._state.until_s:
            # Half-open: other processes send nothing for ``_PROBE_S``, or until this request succeeds.
            state = self._state
            self._store(BreakerState(self._clock_s() + _PROBE_S, state.wait_s, state.failures, state.why))
        return True

    def note_success(self) -> None:
        """Close it."""
        if self._state == BreakerState():
            return
        self._state = BreakerState()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def note_failure(self, why: str, *, at_once: bool) -> float:
        """Count a failure, and open it ``at_once`` or after three in a row; return for how many seconds, or 0."""
        state = self.read()
        failures, wait_s, until_s = state.failures + 1, state.wait_s, 0.0
        opens = at_once or failures >= IN_A_ROW or bool(state.until_s)
        if opens:
            wait_s = min(LONGEST_S, wait_s * 2) if wait_s else FIRST_S
            until_s = self._clock_s() + wait_s
        self._store(BreakerState(until_s, wait_s, failures, why[:300]))
        return wait_s if opens else 0.0

    def _load(self) -> BreakerState:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return BreakerState()
        try:
            document: Any = json.loads(os.read(fd, _MOST_BYTES))
            until_s, wait_s = float(document["until_s"]), float(document["wait_s"])
            if not (0 <= until_s <= self._clock_s() + LONGEST_S and 0 <= wait_s <= LONGEST_S):
                return BreakerState()  # the clock was set back, or the file is damaged
            return BreakerState(until_s, wait_s, int(document["failures"]), str(document["why"]))
        except (ArithmeticError, KeyError, OSError, RecursionError, TypeError, ValueError):
            return BreakerState()
        finally:
            os.close(fd)

    def _store(self, state: BreakerState) -> None:
        self._state = state
        try:
            make_folders(self._path.parent)
            with atomic_write(self._path) as temporary:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                with os.fdopen(fd, "w") as file:
                    json.dump(asdict(state), file)
        except OSError:
            self._in_memory = True


T = TypeVar("T")

_logger = logging.getLogger("trtcache.remote")

REMEDIES: Final = {
    "denied": "check the key or the role; reading needs s3:GetObject and s3:ListBucket, uploads s3:PutObject",
    "no-credentials": "set AWS_ACCESS_KEY_ID, AWS_PROFILE (with boto3), or run under a role",
    "no-bucket": "create it, or correct the URL (TRTCACHE_REMOTE)",
    "not-installed": "or unset TRTCACHE_REMOTE",
    "no-trusted-key": "its entries are ignored until you trust a signing key: trtcache trust add NAME:HEX",
    "forked": "use the 'spawn' start method for processes that compile",
}
"""Reason to stop asking in this process -> what to do about it."""

SIDE_BY_SIDE_BYTES: Final = 64 << 20
"""Size from which an object is downloaded in parts, four at once: one stream rarely fills a fast network."""

_PARTS_AT_ONCE = 4
_PART_BYTES = 4 << 20
"""Four parts that arrive, and one that is written, are in memory."""

_FIRST_PART_BYTES = 1 << 20
_CHUNK_BYTES = 256 << 10
_AT_ONCE = ("unreachable", "timeout")
_MARGIN_S = 0.3
_SLICE_S = 0.1
_WAITING_CHUNKS = 8

_IDLE: list[queue.SimpleQueue[Callable[[], object]]] = []
"""The queue of each thread that waits for a task."""


class Connection:
    """The state of one remote in this process. Create it with ``connect``."""

    def __init__(self, url: RemoteUrl, settings: RemoteSettings) -> None:
        self.url, self.settings = url, settings
        self._identity = hash_bytes(f"{url.text} {url.endpoint} {url.account}".encode()).hex()[:16]
        self.breaker = Breaker(self.note("remote"))
        self.off = ""
        self._bucket: Bucket | None = None

    def note(self, kind: str) -> Path:
        """Return the file in the user's cache folder that keeps what is known of this remote."""
        return cache_folder("trtcache-remotes") / f"{kind}-{self._identity}.json"

    @property
    def bucket(self) -> Bucket:
        """The remote's objects, with the time-outs of look-ups.

        Raises:
            RemoteError: obstore is not installed, or refuses the configuration.
        """
        if self._bucket is None:
            self._bucket = bucket.open_bucket(self.url, self.settings)
        return self._bucket

    def refusal(self, *, before_request: bool = True) -> str:
        """Return why the remote is not asked now, or an empty string.

        After the wait, one caller gets an empty string (or few that ask at the same moment), and has to send the trial
        request. With ``before_request=False`` the caller sends none.
        """
        if bucket.used_by() not in (0, os.getpid()) and not self.off:
            self.stop("forked", "this process was forked after its parent had used the remote")
        if self.off:
            return self.off
        if before_request:
            return "" if self.breaker.admits() else "open"
        return "open" if self.breaker.is_open() else ""

    def stop(self, reason: str, why: str) -> None:
        """Ask nothing any more in this process, and say so once."""
        if not self.off:
            self.off = reason
            _logger.warning("%s is not used by this process: %s; %s", self.url.text, why, REMEDIES[reason])

    def note_success(self, *, took_s: float, saved_s: float = 0.0) -> None:
        """Note an answer. One that took a quarter of the time-out is a failure, unless it saved a longer build."""
        if took_s > max(saved_s, self.settings.timeout_s / 4):
            self.note_failure(RemoteError(self.url.text, "slow", f"its answer took {took_s:.1f} s"))
        else:
            self.breaker.note_success()

    def note_failure(self, error: RemoteError) -> None:
        """Note a failed request: stop for this process, or for a while for all processes of this host."""
        if error.reason in REMEDIES:
            self.stop(error.reason, error.why)
            return
        wait_s = self.breaker.note_failure(error.why, at_once=error.reason in _AT_ONCE)
        if wait_s:
            _logger.warning("%s gets no requests for %.0f s: %s", self.url.text, wait_s, error.why)
        else:
            _logger.info("%s", error)

    def call(self, function: Callable[[Bucket], T], *, limit_s: float | None = None) -> T:
        """Return the result of small requests, made in a thread; a signal interrupts the wait for it.

        Raises:
            RemoteError: a request failed, or they took longer than the time-out.
            Exception: any other exception of ``function``.
        """
        limit_s = self.settings.timeout_s + _MARGIN_S if limit_s is None else limit_s
        received: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def run() -> None:
            try:
                received.put((function(self.bucket), None))
            except BaseException as error:  # noqa: BLE001  # raised by the caller
                received.put((None, error))

        _start(run)
        try:
            result, error = _take(received, time.monotonic() + limit_s)
        except queue.Empty:
            error = RemoteError(self.url.text, "timeout", f"no answer within {limit_s:.1f} s")
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # what the function returned


@functools.cache
def connect(url: RemoteUrl, settings: RemoteSettings) -> Connection:
    """Return the one connection of this process to a remote; nothing is sent."""
    return Connection(url, settings)


class Download:
    """A running download. Leave it with ``abandon``: the thread then ends with the next bytes, or by its time-outs.

    ``modified_ns`` is the time of the object, as soon as its size is known.
    """

    def __init__(self, source: Bucket, name: str) -> None:
        self._source, self._name = source, name
        self._begun: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        self._received: queue.Queue[bytes | BaseException | None]  # made when there is an object: a miss needs none
        self._abandoned = threading.Event()
        self._deadline_s = 0.0
        self._rest_bytes = self._count = self._ahead_bytes = 0
        self.modified_ns = 0
        self._began_s = time.monotonic()
        _start(self._run)

    def size(self, timeout_s: float) -> int | None:
        """Wait for the beginning of the answer, and return the object's size; None if there is no object.

        Raises:
            RemoteError: the request failed, or took longer than ``timeout_s``.
        """
        try:
            found = _take(self._begun, time.monotonic() + timeout_s + _MARGIN_S)
        except queue.Empty:
            raise self._error("timeout", f"no answer within {timeout_s:.1f} s") from None
        if isinstance(found, FileNotFoundError):
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    @property
    def took_s(self) -> float:
        """Seconds since the request was sent."""
        return time.monotonic() - self._began_s

    def limit(self, limit_s: float, *, rest_bytes: int = 0) -> None:
        """Set how long the rest may take from now on; of a known size, give up as soon as it clearly takes longer."""
        self._began_s, self._count, self._rest_bytes = time.monotonic(), 0, rest_bytes
        self._deadline_s = self._began_s + limit_s

    def chunks(self) -> Iterator[bytes]:
        """Yield the object's bytes.

        Raises:
            RemoteError: the answer was cut, or it is clear that the rest takes longer than its limit.
        """
        while True:
            try:
                found = _take(self._received, self._deadline_s)
            except queue.Empty:
                # While the header is awaited, no size is set: then the server itself is slow.
                reason = "slow" if self._rest_bytes else "timeout"
                raise self._error(reason, f"{self._count} bytes in {self.took_s:.1f} s") from None
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            self._count += len(found)
            self._check_throughput()
            yield found

    def _check_throughput(self) -> None:
        elapsed_s = self.took_s
        allowed_s = self._deadline_s - self._began_s
        expected_s = elapsed_s * self._rest_bytes / (self._count + self._ahead_bytes)
        if elapsed_s > min(0.5, allowed_s / 2) and expected_s > allowed_s:
            what = f"{self._rest_bytes} bytes would take {expected_s:.0f} s, more than the {allowed_s:.0f} s allowed"
            raise self._error("slow", what)

    def abandon(self) -> None:
        """Stop the download."""
        self._abandoned.set()

    def _run(self) -> None:
        put: Callable[[BaseException], object] = self._begun.put
        try:
            found, chunks = self._source.get(self._name)
            self.modified_ns = found.modified_ns
            self._received = queue.Queue(_WAITING_CHUNKS)
            put = self._put
            self._begun.put(found.size_bytes)
            if found.size_bytes > SIDE_BY_SIDE_BYTES:
                chunks = self._in_parts(found.size_bytes, chunks)
            while (chunk := next(chunks, None)) is not None:
                if not self._put(chunk):
                    return
            self._put(None)
        except (RemoteError, FileNotFoundError) as error:
            put(error)
        except BaseException as error:  # noqa: BLE001  # such as a panic of the library
            put(self._error("error", f"{type(error).__name__}: {error}"))

    def _in_parts(self, size_bytes: int, stream: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the bytes of a large object: a stream up to its header, then parts that arrive side by side."""
        offset = 0
        # Until the header is accepted, nothing but this stream is requested.
        while not self._rest_bytes and (chunk := next(stream, b"")):
            offset += len(chunk)
            yield chunk
        # The first ones are small, so that a slow network shows before much time is lost.
        starts = [offset + _FIRST_PART_BYTES * number for number in range(_PARTS_AT_ONCE)]
        starts += range(starts[-1] + _FIRST_PART_BYTES, size_bytes, _PART_BYTES)
        parts = list(pairwise([*starts, size_bytes]))
        pending = deque(starmap(self._start_part, parts[:_PARTS_AT_ONCE]))
        for number in range(len(parts)):
            part = pending.popleft().get()
            if isinstance(part, BaseException):
                if number:
                    raise part
                yield from stream  # a server without parts, which sends the whole object each time
                return
            stream = iter(())
            self._ahead_bytes = sum(end - start for start, end in parts[number + 1 : number + _PARTS_AT_ONCE])
            pending.extend(starmap(self._start_part, parts[number + _PARTS_AT_ONCE :][:1]))
            for start in range(0, len(part), _CHUNK_BYTES):
                yield part[start : start + _CHUNK_BYTES]
            part.close()

    def _start_part(self, start: int, end: int) -> queue.Queue[mmap | BaseException]:
        part: queue.Queue[mmap | BaseException] = queue.Queue(1)

        def run() -> None:
            try:
                part.put(self._source.get_part(self._name, start, end))
            except BaseException as error:  # noqa: BLE001  # raised by the caller
                part.put(error)

        threading.Thread(target=run, name="trtcache-remote-part", daemon=True).start()
        return part

    def _put(self, item: bytes | BaseException | None) -> bool:
        while not self._abandoned.is_set():
            try:
                self._received.put(item, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def _error(self, reason: str, why: str) -> RemoteError:
        return RemoteError(self._source.url.text, reason, why)


def _start(task: Callable[[], object]) -> None:
    """Run a function in an idle thread, or in a new one: starting a thread takes longer than a fast miss.

    MUST NOT be called after a fork, which leaves the threads to the parent: see ``Connection.refusal``.
    """
    try:
        tasks = _IDLE.pop()
    except IndexError:
        tasks = queue.SimpleQueue()
        threading.Thread(target=_run_tasks, args=(tasks,), name="trtcache-remote", daemon=True).start()
    tasks.put(task)


def _run_tasks(tasks: queue.SimpleQueue[Callable[[], object]]) -> None:
    while True:
        tasks.get()()
        _IDLE.append(tasks)


def _take(received: queue.Queue[T] | queue.SimpleQueue[T], deadline_s: float) -> T:
    """Return the next item that a thread has received.

    Raises:
        queue.Empty: there is none at the deadline.
    """
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            # In slices: a signal that arrives just before the wait begins is noticed only after it.
            return received.get(timeout=min(max(left_s, 0.001), _SLICE_S))
        except queue.Empty:
            if left_s <= _SLICE_S:
                raise
