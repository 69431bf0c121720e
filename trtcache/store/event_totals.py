"""What old event logs said, as sums: a line for each log that is not kept any longer, appended before it goes."""

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
"""How many logs a host has, the one that it appends to included."""

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class LogTotals:
    """A log that is gone or about to go: its name, how long it was, and what it counted."""

    log: str
    size_bytes: int
    counters: Counters


def retire(directory: Path, host: str, *, kept: int = KEPT) -> None:
    """Sum the oldest logs of a host, and remove them; one process does it at a time, and no log counts twice.

    Raises:
        OSError: the logs cannot be read or the sums not written; what is not summed stays.
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
        known = {one.log for one in _read(path)}
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
    line = b"\n" + json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"  # a torn line before is its own
    if os.write(fd, line) != len(line):
        raise OSError(f"{log.name} could not be summed")
    os.fsync(fd)


def read_sums(directory: Path) -> list[LogTotals]:
    """Return the sums of all hosts.

    Raises:
        OSError: they cannot be read.
    """
    return [one for path in sorted(directory.glob(f"*{SUFFIX}")) for one in _read(path)]


def _read(path: Path) -> list[LogTotals]:
    if not stat.S_ISREG(path.lstat().st_mode):
        return []
    with os.fdopen(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        found = [_decode(line) for line in file.read(MOST_BYTES).splitlines()]
    return list({one.log: one for one in found if one is not None}.values())


def _decode(line: bytes) -> LogTotals | None:
    try:
        document: Any = json.loads(line)
        counters: Counters = {}
        for day, event, reason, kind, number, sum_s in document["counts"]:
            counters[str(day), str(event), str(reason), str(kind)] = EventCount(int(number), float(sum_s))
        return LogTotals(str(document["log"]), int(document["bytes"]), counters)
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
        return None
