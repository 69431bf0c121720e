"""What happened to a store: append-only logs of each host, one JSON object per line.

A line is written by one ``write`` on a descriptor opened for appending, so processes need no lock, and a hit costs
no database. Readers skip a line that is not whole. A log that has grown large is followed by one of the next number,
under which it never grows again, so how far each was counted stays true; of the oldest only sums are kept.
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

    from trtcache.store.event_totals import LogTotals
    from trtcache.store.folders import Folders

_LONGEST_READ_BYTES = 16384  # three texts of 512 characters, each written in six bytes, and the rest
_MAX_TEXT = 512
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]|^\.")
_LOG = re.compile(r"([^+]*)(?:\+([1-9][0-9]{0,8}))?\.jsonl")
LIMIT_BYTES: Final = 4 << 20
"""When a log is full: with about 40,000 events."""

MOST_BYTES: Final = 4 * LIMIT_BYTES
"""What is read of one log or of its sums. A member of a shared store can make one of any length at no cost."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log.

    ``event`` is ``hit``, ``miss``, ``put``, ``put_failed``, ``copy`` from a layer below, ``evict``, ``quarantine``,
    ``reject``, ``wait`` for another that builds, or ``takeover`` from one that died. ``saved_s`` is what a hit saved:
    the seconds of the build less the seconds of the load. ``waited_s`` is what a wait took.
    """

    t_ns: int
    event: str
    reason: str = ""
    kind: str = ""
    key: str = ""
    saved_s: float = 0.0
    waited_s: float = 0.0


class EventLog:
    """The logs of a store. ``host`` names those that this process appends to, ``limit_bytes`` when one is full."""

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
        """Append one event. A log that cannot be written is of no consequence to what it is about."""
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
                ours = is_plain(os.fstat(fd))  # by a hard link a member could have lines written to another's file
                if ours and os.write(fd, line) < len(line):
                    os.write(fd, b"\n")  # so that it costs no other event
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
        """Have the next event, of whichever process, go to another log, and keep sums of the oldest ones."""
        from trtcache.store.event_totals import retire  # once in 40,000 events

        found = max(numbers(directory, self._host), default=0)
        self._number = found if self._number is None or found > self._number else found + 1
        make_permanent(directory / log_name(self._host, self._number))
        retire(directory, self._host)

    def logs(self) -> list[Path]:
        """Return the logs of all hosts, in order of their names."""
        return sorted(self.directory.glob("*.jsonl"))

    def sums(self) -> list[LogTotals]:
        """Return the sums of logs that are not kept any longer. List the logs before, or one may be in neither.

        Raises:
            OSError: they cannot be read.
        """
        from trtcache.store.event_totals import read_sums

        return read_sums(self.directory)

    def read(self) -> Iterator[Event]:
        """Return all events, log by log."""
        for path in self.logs():
            yield from read_from(path, 0)[0]


def read_from(path: Path, offset: int) -> tuple[list[Event], int]:
    """Return the events of a log from a byte offset on, and the offset to go on from.

    A last line without its end is left for the next time, and so is what is too long to be read at once; a line that
    is no event is skipped.

    Raises:
        OSError: the log cannot be read.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        return [], offset  # a directory or a pipe that somebody put there
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
    """Return the name of a host's log; ``+`` is in no host's name."""
    return f"{host}+{number}.jsonl" if number else f"{host}.jsonl"


def numbers(directory: Path, host: str) -> list[int]:
    """Return the numbers of a host's logs in a directory, lowest first, up to the first that is missing.

    A member of a shared store can make a log of the highest number that there is, after which none could follow.

    Raises:
        OSError: the directory cannot be read.
    """
    names = os.listdir(directory)  # noqa: PTH208  # names alone are wanted
    found = (match for name in names if (match := _LOG.fullmatch(name)))
    there = {int(match[2] or 0) for match in found if match[1] == host}
    return [*takewhile(there.__contains__, count(min(there, default=0)))]
