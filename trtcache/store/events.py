"""Event logs of a store, and the counters of hits, misses and other events that are summed from them.

A log is an append-only file of one host with one JSON object per line. Lines are written by one ``write`` on a
descriptor opened for appending, so processes need no lock and a hit needs no database. Readers skip incomplete lines. A
full log is followed by one with the next number and never grows again, so counted offsets stay valid; the oldest logs
are reduced to sums. Logs and sums are authoritative; the index caches counters, so counting continues without it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import explain_full_disk
from trtcache.store.files import Folders, is_plain, make_permanent, publish_bytes

_logger = logging.getLogger("trtcache.store")

_LONGEST_READ_BYTES = 16384  # three texts of 512 characters, each written in six bytes, and the rest
_MAX_TEXT = 512
_MOST_TRANSFERRED_BYTES = 1 << 40  # sums of what another member of a shared store writes must fit into 64 bits
_MOST_S = 1e18  # 30 billion years, and no sum of them is infinite
_LAST_NUMBER = 10**8
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]|^\.")
_LOG = re.compile(r"([^+]*)(?:\+([1-9][0-9]{0,8}))?\.jsonl")
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
LIMIT_BYTES: Final = 4 << 20
"""Size of a full log, about 40,000 events."""

MOST_BYTES: Final = 4 * LIMIT_BYTES
"""Read limit for a log or its sums. A member of a shared store can create a sparse file of any length."""

Counters: TypeAlias = "dict[tuple[str, str, str, str], EventCount]"
"""(day in UTC, event, reason or "", kind or "") -> count."""
BYTES: Final = ":bytes"
SAVED: Final = ":saved"
"""Suffixes of an event in the counters: how many bytes it transferred, and how many seconds it saved."""

SUFFIX = ".sums"
KEPT = 4
"""Number of logs that a host keeps, including the current one."""


@frozen_dataclass
class Event:
    """One line of a log.

    ``event`` is ``hit``, ``miss``, ``put``, ``put_failed``, ``copy`` (from a lower layer), ``evict``, ``quarantine``,
    ``reject``, ``wait`` (for another builder), ``takeover`` (from a builder that died), ``build_failed`` or
    ``build_cancelled`` (by a watcher, or Ctrl-C); the reason of these two is the class of the exception.
    ``saved_s`` is the time that a hit saved: build seconds minus load seconds. ``waited_s`` is the duration of a wait.

    Those of a remote are ``remote_hit``, ``remote_miss``, ``remote_skip`` (nothing was asked), ``upload`` and
    ``upload_failed``; their reason starts with its URL, ``waited_s`` is the duration of the request, and ``size_bytes``
    what was transferred.
    """

    t_ns: int
    event: str
    reason: str = ""
    kind: str = ""
    key: str = ""
    saved_s: float = 0.0
    waited_s: float = 0.0
    size_bytes: int = 0


class EventLog:
    """Event logs of a store. ``host`` is the name for this process's logs, ``limit_bytes`` the size of a full one."""

    def __init__(
        self,
        folders: Folders,
        *,
        clock_ns: Callable[[], int],
        writable: bool,
        host: str | None = None,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self._folders = folders
        self.directory = folders.root / "events"
        self._clock_ns = clock_ns
        self._writable = writable
        self._host = _NO_NAME.sub("_", host or os.uname().nodename)[:200]
        self._limit_bytes = limit_bytes
        self._number: int | None = None

    def append(
        self,
        event: str,
        *,
        reason: str = "",
        kind: str = "",
        key: str = "",
        saved_s: float = 0.0,
        waited_s: float = 0.0,
        size_bytes: int = 0,
    ) -> None:
        """Append one event. A write error is ignored."""
        self.extend([Event(self._clock_ns(), event, reason, kind, key, saved_s, waited_s, size_bytes)])

    def extend(self, events: Iterable[Event]) -> None:
        """Append events by one write. An error is ignored."""
        if not self._writable:
            return
        lines = b"".join(map(_encode, events))
        try:
            try:
                with self._folders.inside("events") as directory:
                    self._append_in(directory, lines)
            except FileNotFoundError:
                with self._folders.inside("events", make=True) as directory:
                    self._append_in(directory, lines)
        except OSError:
            return

    def _append_in(self, directory: Path, lines: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | _FLAGS
        for _ in range(2):
            fd = -1
            if self._number is not None:
                with suppress(FileNotFoundError):
                    fd = os.open(directory / log_name(self._host, self._number), flags)
            if fd < 0:
                self._number = max(numbers(directory, self._host), default=None)
                if self._number is None:
                    self._number = _after_sums(directory, self._host)
                path = directory / log_name(self._host, self._number)
                make_permanent(path)
                fd = os.open(path, flags)
            try:
                ours = is_plain(os.fstat(fd))  # a hard link could redirect the line into another user's file
                if ours and os.write(fd, lines) < len(lines):
                    os.write(fd, b"\n")  # a short write must not damage the next event
                full = not ours or os.fstat(fd).st_size >= self._limit_bytes
            finally:
                os.close(fd)
            if full:  # switch to the next log for all processes, and reduce the oldest logs to sums
                newest = max(numbers(directory, self._host), default=self._number or 0)
                self._number = newest if self._number is None or newest > self._number else newest + 1
                make_permanent(directory / log_name(self._host, self._number))
                retire(directory, self._host)
            if ours:
                return

    def replace(self, name: str, content: bytes) -> None:
        """Write another file of the events directory atomically.

        Raises:
            OSError: it cannot be written; an earlier file of that name stays.
        """
        path = self.directory / name
        remedy = "free space with 'trtcache prune' or 'trtcache clean'"
        with explain_full_disk(path, remedy), self._folders.inside("events", make=True) as directory:
            publish_bytes(directory / name, content)

    def logs(self) -> list[Path]:
        """List the logs of all hosts, sorted by name."""
        return sorted(self.directory.glob("*.jsonl"))

    def read(self) -> Iterator[Event]:
        """Yield all events, log by log."""
        for path in self.logs():
            yield from _tail(path, 0)[0]


def _encode(event: Event) -> bytes:
    document: dict[str, Any] = {"t": event.t_ns, "event": event.event}
    texts = (("reason", event.reason), ("kind", event.kind), ("key", event.key))
    document |= {name: text[:_MAX_TEXT] for name, text in texts if text}
    times = (("saved_s", event.saved_s), ("waited_s", event.waited_s))
    document |= {name: round(time_s, 6) for name, time_s in times if time_s}
    document |= {"bytes": event.size_bytes} if event.size_bytes else {}
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def read_from(path: Path, offset: int) -> tuple[list[Event], int]:
    """Return the events of a log after a byte offset, and the offset to continue from.

    An incomplete last line and data beyond the read limit are left for the next call; malformed lines are skipped.

    Raises:
        OSError: it cannot be read.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        return [], offset  # a directory or a pipe
    fd = os.open(path, os.O_RDONLY | _FLAGS)
    with os.fdopen(fd, "rb") as file:
        file.seek(offset)
        raw = file.read(MOST_BYTES)
    whole = raw[: raw.rfind(b"\n") + 1]
    events = []
    for line in whole.splitlines():
        if len(line) > _LONGEST_READ_BYTES:
            continue
        with suppress(ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            document = json.loads(line)
            event, reason, kind, key = (str(document.get(name, "")) for name in ("event", "reason", "kind", "key"))
            saved_s, waited_s = (_seconds(document.get(name, 0.0)) for name in ("saved_s", "waited_s"))
            size_bytes = min(max(0, int(document.get("bytes", 0))), _MOST_TRANSFERRED_BYTES)
            events.append(Event(int(document["t"]), event, reason, kind, key, saved_s, waited_s, size_bytes))
    return events, offset + len(whole)


def _seconds(given: object) -> float:
    """Return the seconds of a line, or 0 for a number that has no sum: the index would be rebuilt for a NaN.

    Raises:
        TypeError, ValueError, OverflowError: it is not a number.
    """
    seconds = float(given)  # type: ignore[arg-type]  # raises
    return seconds if 0 <= seconds <= _MOST_S else 0.0


def log_name(host: str, number: int) -> str:
    """Return the file name of a host's log; host names do not contain ``+``."""
    return f"{host}+{number}.jsonl" if number else f"{host}.jsonl"


def numbers(directory: Path, host: str) -> list[int]:
    """Return the numbers of a host's logs in a directory in ascending order, up to the first gap.

    A member of a shared store could otherwise create the log with the highest number, after which none could follow.
    """
    names = os.listdir(directory)  # noqa: PTH208  # only the names are needed
    found = (match for name in names if (match := _LOG.fullmatch(name)))
    there = {int(match[2] or 0) for match in found if match[1] == host}
    return [*takewhile(there.__contains__, count(min(there, default=0)))]


@frozen_dataclass
class EventCount:
    """Number of events and their seconds: for hits the build time saved, for waits the time waited."""

    count: int = 0
    sum_s: float = 0.0


def tails(
    logs: Iterable[Path], offsets: Mapping[str, int], sums: Iterable[LogTotals] = ()
) -> tuple[Counters, dict[str, int]] | None:
    """Count the events of the logs after ``offsets`` (by file name), and return the counts with the new offsets.

    A log shorter than its offset was replaced and is counted from the start. Returns None if a log was partly counted
    and only its sum is left: then everything has to be counted again.
    """
    counters: Counters = {}
    reached: dict[str, int] = {}
    for summed in sums:
        offset_bytes = offsets.get(summed.log, 0)
        if 0 < offset_bytes < summed.size_bytes:
            return None
        reached[summed.log] = summed.size_bytes
        if not offset_bytes:
            for key, total in summed.counters.items():
                _add(counters, key, total.count, total.sum_s)
    for log in logs:
        if log.name not in reached:
            events, reached[log.name] = _tail(log, offsets.get(log.name, 0))
            _count(events, counters)
    return counters, reached


def _tail(log: Path, offset_bytes: int) -> tuple[list[Event], int]:
    try:
        if log.lstat().st_size < offset_bytes:
            offset_bytes = 0
        return read_from(log, offset_bytes)
    except FileNotFoundError:
        return [], offset_bytes  # summed and removed after the logs were listed; its sum is read next time
    except OSError as error:
        _logger.warning("%s cannot be read and is not counted: %s", log, error.strerror)
        return [], offset_bytes


def since(logs: Iterable[Path], sums: Iterable[LogTotals], since_ns: int) -> Counters:
    """Count the events since a time; of a log of which only sums are left, the whole first day is counted."""
    counters: Counters = {}
    gone, first = set[str](), day_of(since_ns)
    for summed in sums:
        gone.add(summed.log)
        for key, total in summed.counters.items():
            if key[0] >= first:
                _add(counters, key, total.count, total.sum_s)
    for log in logs:
        if log.name not in gone:
            _count((event for event in _tail(log, 0)[0] if event.t_ns >= since_ns), counters)
    return counters


def _count(events: Iterable[Event], counters: Counters) -> None:
    for event in events:
        day = day_of(event.t_ns)
        _add(counters, (day, event.event, event.reason, event.kind), 1, event.waited_s or event.saved_s)
        # An event has one number of seconds in the sums and in the index; its bytes, and what a hit of a remote saved,
        # are counted as events of their own.
        if event.size_bytes:
            _add(counters, (day, event.event + BYTES, event.reason, event.kind), event.size_bytes, 0.0)
        if event.waited_s and event.saved_s:
            _add(counters, (day, event.event + SAVED, event.reason, event.kind), 1, event.saved_s)


def _add(counters: Counters, key: tuple[str, str, str, str], count: int, sum_s: float) -> None:
    total = counters.get(key, EventCount())
    counters[key] = EventCount(total.count + count, total.sum_s + sum_s)


def day_of(t_ns: int) -> str:
    """Return the UTC day of a time, empty if it is out of range."""
    try:
        return datetime.fromtimestamp(t_ns / 1e9, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""  # a wrong clock or a damaged line: counted without a day


@frozen_dataclass
class LogTotals:
    """Name, length and counters of a log that is removed or about to be."""

    log: str
    size_bytes: int
    counters: Counters


def retire(directory: Path, host: str, *, kept: int = KEPT) -> None:
    """Sum the oldest logs of a host, and remove them. One process does it at a time, and no log is counted twice.

    Raises:
        OSError: the logs cannot be read or the sums cannot be written; logs that are not summed stay.
    """
    excess = numbers(directory, host)[:-kept]
    if not excess:
        return
    path = directory / f"{host}{SUFFIX}"
    make_permanent(path)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | _FLAGS)
    try:
        if not is_plain(os.fstat(fd)):
            raise OSError(f"{path.name} is not a plain file")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        known = {totals.log for totals in _read_sums(path)}
        for log in (directory / log_name(host, number) for number in excess):
            if log.name not in known:
                events, size_bytes = read_from(log, 0)
                counters: Counters = {}
                _count(events, counters)
                rows = [[*key, total.count, round(total.sum_s, 6)] for key, total in counters.items()]
                document = {"log": log.name, "bytes": size_bytes, "counts": rows}
                # It starts with a newline, so that a torn line before it stays a separate line.
                line = b"\n" + json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"
                if os.write(fd, line) != len(line):
                    raise OSError(f"{log.name} could not be summed")
                os.fsync(fd)
            log.unlink(missing_ok=True)
    finally:
        os.close(fd)


def read_sums(directory: Path) -> list[LogTotals]:
    """Return the sums of all hosts. A file that cannot be read is logged and skipped."""
    found: list[LogTotals] = []
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        try:
            found += _read_sums(path)
        except OSError as error:
            _logger.warning("%s cannot be read and is not counted: %s", path, error.strerror)
    return found


def _after_sums(directory: Path, host: str) -> int:
    """Return the number for the first log of a host that has none: a log in the sums is not counted again."""
    try:
        names = [totals.log for totals in _read_sums(directory / f"{host}{SUFFIX}")]
    except OSError:
        return 0
    matches = (match for name in names if (match := _LOG.fullmatch(name)) and match[1] == host)
    # No log could follow the highest number, which a member of a shared store could write.
    return max((number + 1 for match in matches if (number := int(match[2] or 0)) < _LAST_NUMBER), default=0)


def _read_sums(path: Path) -> list[LogTotals]:
    if not stat.S_ISREG(path.lstat().st_mode):
        return []
    with os.fdopen(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        lines = file.read(MOST_BYTES).splitlines()
    found = {}
    for line in lines:
        with suppress(ArithmeticError, KeyError, RecursionError, TypeError, ValueError):  # a torn line
            document: Any = json.loads(line)
            counters: Counters = {}
            for day, event, reason, kind, count_, sum_s in document["counts"]:
                counters[str(day), str(event), str(reason), str(kind)] = EventCount(int(count_), _seconds(sum_s))
            name = str(document["log"])
            found[name] = LogTotals(name, int(document["bytes"]), counters)
    return list(found.values())
