"""Sums of removed event logs: one line for each log, appended before the log is deleted."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.store.counters import Counters, EventCount, count
from trtcache.store.events import MOST_BYTES, log_name, numbers, read_from
from trtcache.store.files import is_plain, make_permanent

if TYPE_CHECKING:
    from pathlib import Path

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
