"""Event logs of a store: append-only files for each host, one JSON object per line.

A line is written by one ``write`` on a descriptor opened for appending, so processes need no lock and a hit needs no
database. Readers skip incomplete lines. A full log is followed by one with the next number and never grows again, so
counted offsets stay valid; the oldest logs are reduced to sums.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, Final

from trtcache.store.files import is_plain, make_permanent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trtcache.store.counters import LogTotals
    from trtcache.store.folders import Folders

_LONGEST_READ_BYTES = 16384  # three texts of 512 characters, each written in six bytes, and the rest
_MAX_TEXT = 512
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]|^\.")
_LOG = re.compile(r"([^+]*)(?:\+([1-9][0-9]{0,8}))?\.jsonl")
LIMIT_BYTES: Final = 4 << 20
"""Size of a full log, about 40,000 events."""

MOST_BYTES: Final = 4 * LIMIT_BYTES
"""Read limit for a log or its sums. A member of a shared store can create a sparse file of any length."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log.

    ``event`` is ``hit``, ``miss``, ``put``, ``put_failed``, ``copy`` (from a lower layer), ``evict``, ``quarantine``,
    ``reject``, ``wait`` (for another builder), or ``takeover`` (from a builder that died). ``saved_s`` is the time that
    a hit saved: build seconds minus load seconds. ``waited_s`` is the duration of a wait.
    """

    t_ns: int
    event: str
    reason: str = ""
    kind: str = ""
    key: str = ""
    saved_s: float = 0.0
    waited_s: float = 0.0


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
    ) -> None:
        """Append one event. A write error is ignored."""
        if not self._writable:
            return
        line = _encode(Event(self._clock_ns(), event, reason, kind, key, saved_s, waited_s))
        try:
            self._write(line)
        except OSError:
            return

    def _write(self, line: bytes) -> None:
        try:
            with self._folders.inside("events") as directory:
                self._append_in(directory, line)
        except FileNotFoundError:
            with self._folders.inside("events", make=True) as directory:
                self._append_in(directory, line)

    def _append_in(self, directory: Path, line: bytes) -> None:
        for _ in range(2):
            fd = self._open_in(directory)
            try:
                ours = is_plain(os.fstat(fd))  # a hard link could redirect the line into another user's file
                if ours and os.write(fd, line) < len(line):
                    os.write(fd, b"\n")  # a short write must not damage the next event
                full = not ours or os.fstat(fd).st_size >= self._limit_bytes
            finally:
                os.close(fd)
            if full:
                self._next(directory)
            if ours:
                return

    def _open_in(self, directory: Path) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        if self._number is not None:
            with suppress(FileNotFoundError):
                return os.open(directory / log_name(self._host, self._number), flags)
        self._number = max(numbers(directory, self._host), default=0)
        path = directory / log_name(self._host, self._number)
        make_permanent(path)
        return os.open(path, flags)

    def _next(self, directory: Path) -> None:
        """Switch to the next log for all processes, and reduce the oldest logs to sums."""
        from trtcache.store.counters import retire  # once in 40,000 events

        found = max(numbers(directory, self._host), default=0)
        self._number = found if self._number is None or found > self._number else found + 1
        make_permanent(directory / log_name(self._host, self._number))
        retire(directory, self._host)

    def logs(self) -> list[Path]:
        """List the logs of all hosts, sorted by name."""
        return sorted(self.directory.glob("*.jsonl"))

    def sums(self) -> list[LogTotals]:
        """Return the sums of removed logs. List the logs first, or a log may be missing from both.

        Raises:
            OSError: the sums cannot be read.
        """
        from trtcache.store.counters import read_sums

        return read_sums(self.directory)

    def read(self) -> Iterator[Event]:
        """Yield all events, log by log."""
        for path in self.logs():
            yield from read_from(path, 0)[0]


def read_from(path: Path, offset: int) -> tuple[list[Event], int]:
    """Return the events of a log after a byte offset, and the offset to continue from.

    An incomplete last line and data beyond the read limit are left for the next call; malformed lines are skipped.

    Raises:
        OSError: the log cannot be read.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        return [], offset  # a directory or a pipe
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        file.seek(offset)
        raw = file.read(MOST_BYTES)
    whole = raw[: raw.rfind(b"\n") + 1]
    events = (_decode(line) for line in whole.splitlines() if len(line) <= _LONGEST_READ_BYTES)
    return [event for event in events if event is not None], offset + len(whole)


def _encode(event: Event) -> bytes:
    document: dict[str, Any] = {"t": event.t_ns, "event": event.event}
    for name in ("reason", "kind", "key"):
        text = getattr(event, name)
        if text:
            document[name] = text[:_MAX_TEXT]
    for name in ("saved_s", "waited_s"):
        if seconds := getattr(event, name):
            document[name] = round(seconds, 6)
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(line: bytes) -> Event | None:
    try:
        document = json.loads(line)
        event, reason, kind, key = (str(document.get(name, "")) for name in ("event", "reason", "kind", "key"))
        saved_s, waited_s = (float(document.get(name, 0.0)) for name in ("saved_s", "waited_s"))
        return Event(int(document["t"]), event, reason, kind, key, saved_s, waited_s)
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


def log_name(host: str, number: int) -> str:
    """Return the file name of a host's log; host names do not contain ``+``."""
    return f"{host}+{number}.jsonl" if number else f"{host}.jsonl"


def numbers(directory: Path, host: str) -> list[int]:
    """Return the numbers of a host's logs in a directory in ascending order, up to the first gap.

    A member of a shared store could otherwise create the log with the highest number, after which none could follow.

    Raises:
        OSError: the directory cannot be read.
    """
    names = os.listdir(directory)  # noqa: PTH208  # only the names are needed
    found = (match for name in names if (match := _LOG.fullmatch(name)))
    there = {int(match[2] or 0) for match in found if match[1] == host}
    return [*takewhile(there.__contains__, count(min(there, default=0)))]
