"""What happened to a store: one append-only log per host, one JSON object per line.

A line is written by one ``write`` on a descriptor opened for appending, so processes need no lock, and a hit costs
no database. Readers skip a line that is not whole.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.store.files import make_permanent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trtcache.store.folders import Folders

_LONGEST_READ_BYTES = 16384  # three texts of 512 characters, each written in six bytes, and the rest
_MAX_TEXT = 512


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log.

    ``event`` is ``hit``, ``miss``, ``put``, ``put_failed``, ``evict``, ``quarantine`` or ``reject``. ``saved_s`` is
    what a hit saved: the seconds of the build less the seconds of the load.
    """

    t_ns: int
    event: str
    reason: str = ""
    kind: str = ""
    key: str = ""
    saved_s: float = 0.0


class EventLog:
    """The logs of a store. ``host`` names the one that this process appends to."""

    def __init__(
        self, folders: Folders, *, clock_ns: Callable[[], int], writable: bool, host: str | None = None
    ) -> None:
        self._folders = folders
        self.directory = folders.root / "events"
        self._clock_ns = clock_ns
        self._writable = writable
        self._name = re.sub(r"[^A-Za-z0-9._-]|^\.", "_", host or os.uname().nodename)[:200] + ".jsonl"

    def append(self, event: str, *, reason: str = "", kind: str = "", key: str = "", saved_s: float = 0.0) -> None:
        """Append one event. A log that cannot be written is of no consequence to what it is about."""
        if not self._writable:
            return
        line = _encode(Event(self._clock_ns(), event, reason, kind, key, saved_s))
        try:
            fd = self._open()
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError:
            return

    def _open(self) -> int:
        try:
            with self._folders.inside("events") as directory:
                return self._open_in(directory)
        except FileNotFoundError:
            with self._folders.inside("events", make=True) as directory:
                return self._open_in(directory)

    def _open_in(self, directory: Path) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        path = directory / self._name
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            make_permanent(path)
            fd = os.open(path, flags)
        return fd

    def logs(self) -> list[Path]:
        """Return the logs of all hosts, in order of their names."""
        return sorted(self.directory.glob("*.jsonl"))

    def read(self) -> Iterator[Event]:
        """Return all events, log by log."""
        for path in self.logs():
            yield from read_from(path, 0)[0]


def read_from(path: Path, offset: int) -> tuple[list[Event], int]:
    """Return the events of a log from a byte offset on, and the offset to go on from.

    A last line without its end is left for the next time; a line that is no event is skipped.

    Raises:
        OSError: the log cannot be read.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        return [], offset  # a directory or a pipe that somebody put there
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        file.seek(offset)
        raw = file.read()
    whole = raw[: raw.rfind(b"\n") + 1]
    events = (_decode(line) for line in whole.splitlines() if len(line) <= _LONGEST_READ_BYTES)
    return [event for event in events if event is not None], offset + len(whole)


def _encode(event: Event) -> bytes:
    document: dict[str, Any] = {"t": event.t_ns, "event": event.event}
    for name in ("reason", "kind", "key"):
        text = getattr(event, name)
        if text:
            document[name] = text[:_MAX_TEXT]
    if event.saved_s:
        document["saved_s"] = round(event.saved_s, 6)
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(line: bytes) -> Event | None:
    try:
        document = json.loads(line)
        event, reason, kind, key = (str(document.get(name, "")) for name in ("event", "reason", "kind", "key"))
        return Event(int(document["t"]), event, reason, kind, key, float(document.get("saved_s", 0.0)))
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
