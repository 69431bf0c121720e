"""Counters of hits, misses and other events, summed from the event logs by day, event, reason and kind.

The logs, and the sums of removed logs, are authoritative. The index caches sums of them, so counting continues while
the index is missing or locked.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from trtcache.store.events import MOST_BYTES, log_name, numbers, read_from
from trtcache.store.files import is_plain, make_permanent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trtcache.store.events import Event

Counters: TypeAlias = "dict[tuple[str, str, str, str], EventCount]"
"""(day in UTC, event, reason or "", kind or "") -> count."""


@dataclass(frozen=True, slots=True)
class EventCount:
    """Number of events and their seconds: for hits the build time saved, for waits the time waited."""

    count: int = 0
    sum_s: float = 0.0

    def plus(self, sum_s: float, count: int = 1) -> EventCount:
        """Return the count increased by ``count`` events of ``sum_s`` seconds."""
        return EventCount(self.count + count, self.sum_s + sum_s)


def tails(
    logs: Iterable[Path], offsets: Mapping[str, int], sums: Iterable[LogTotals] = ()
) -> tuple[Counters, dict[str, int]] | None:
    """Count the events of the logs after ``offsets`` (by file name), and return the counts with the new offsets.

    A log shorter than its offset was replaced and is counted from the start. Returns None if a log was partly counted
    and only its sum is left: then everything has to be counted again.

    Raises:
        OSError: a log cannot be read.
    """
    counters: Counters = {}
    reached: dict[str, int] = {}
    for summed in sums:
        offset_bytes = offsets.get(summed.log, 0)
        if 0 < offset_bytes < summed.size_bytes:
            return None
        reached[summed.log] = summed.size_bytes
        if not offset_bytes:
            add(summed.counters, counters)
    for log in logs:
        if log.name not in reached:
            events, reached[log.name] = _tail(log, offsets.get(log.name, 0))
            count(events, counters)
    return counters, reached


def _tail(log: Path, offset_bytes: int) -> tuple[list[Event], int]:
    try:
        if log.lstat().st_size < offset_bytes:
            offset_bytes = 0
        return read_from(log, offset_bytes)
    except FileNotFoundError:
        return [], offset_bytes  # summed and removed after the logs were listed; its sum is read next time


def since(logs: Iterable[Path], sums: Iterable[LogTotals], since_ns: int) -> Counters:
    """Count the events since a time; of a log of which only sums are left, the whole first day is counted.

    Raises:
        OSError: a log cannot be read.
    """
    counters: Counters = {}
    gone, first = set[str](), day_of(since_ns)
    for summed in sums:
        gone.add(summed.log)
        add({key: total for key, total in summed.counters.items() if key[0] >= first}, counters)
    for log in logs:
        if log.name not in gone:
            count((event for event in _tail(log, 0)[0] if event.t_ns >= since_ns), counters)
    return counters


def count(events: Iterable[Event], counters: Counters) -> None:
    """Add events to ``counters``."""
    for event in events:
        key = (day_of(event.t_ns), event.event, event.reason, event.kind)
        counters[key] = counters.get(key, EventCount()).plus(event.saved_s + event.waited_s)


def add(more: Counters, counters: Counters) -> None:
    """Add counters to other counters."""
    for key, total in more.items():
        counters[key] = counters.get(key, EventCount()).plus(total.sum_s, total.count)


def day_of(t_ns: int) -> str:
    """Return the UTC day of a time, empty if it is out of range."""
    try:
        return datetime.fromtimestamp(t_ns / 1e9, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""  # a wrong clock or a damaged line: counted without a day


SUFFIX = ".sums"
KEPT = 4
"""Number of logs that a host keeps, including the current one."""

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
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
        known = {totals.log for totals in _read(path)}
        for log in (directory / log_name(host, number) for number in excess):
            if log.name not in known:
                _append(fd, log)
            log.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _append(fd: int, log: Path) -> None:
    events, size_bytes = read_from(log, 0)
    counters: Counters = {}
    count(events, counters)
    rows = [[*key, total.count, round(total.sum_s, 6)] for key, total in counters.items()]
    document = {"log": log.name, "bytes": size_bytes, "counts": rows}
    line = (
        b"\n" + json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"
    )  # a torn line before it stays a separate line
    if os.write(fd, line) != len(line):
        raise OSError(f"{log.name} could not be summed")
    os.fsync(fd)


def read_sums(directory: Path) -> list[LogTotals]:
    """Return the sums of all hosts.

    Raises:
        OSError: they cannot be read.
    """
    return [totals for path in sorted(directory.glob(f"*{SUFFIX}")) for totals in _read(path)]


def _read(path: Path) -> list[LogTotals]:
    if not stat.S_ISREG(path.lstat().st_mode):
        return []
    with os.fdopen(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        decoded = [_decode(line) for line in file.read(MOST_BYTES).splitlines()]
    return list({totals.log: totals for totals in decoded if totals is not None}.values())


def _decode(line: bytes) -> LogTotals | None:
    try:
        document: Any = json.loads(line)
        counters: Counters = {}
        for day, event, reason, kind, number, sum_s in document["counts"]:
            counters[str(day), str(event), str(reason), str(kind)] = EventCount(int(number), float(sum_s))
        return LogTotals(str(document["log"]), int(document["bytes"]), counters)
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
        return None
