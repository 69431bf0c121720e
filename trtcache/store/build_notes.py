"""BuildProcess builds an entry and who waits for it: notes beside the locks, for people.

A note decides nothing. The kernel's locks say who is alive: a builder's note counts while the entry's lock is held, a
waiter's while its own file is. Whoever can write to a store can write any note, so it is read as a text of strangers.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.store.files import file_mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.store.folders import Folders

NOTES = _BUILDING, _WAITING = "building", "waiting"
"""The folders of notes, beside those of the locks."""

_MAX_BYTES = 4096
_MAX_TEXT = 128
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class BuildProcess:
    """A process that builds or waits, since when, and what kind of entry of what name it wants."""

    host: str
    pid: int
    program: str
    since_ns: int
    kind: str = ""
    name: str = ""

    @classmethod
    def here(cls, *, kind: str = "", name: str = "") -> BuildProcess:
        """Return this process, from now on."""
        program = Path(sys.argv[0]).name if getattr(sys, "argv", None) else ""
        return cls(os.uname().nodename, os.getpid(), program, time.time_ns(), kind, name)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

    def encode(self) -> bytes:
        """Return the note's bytes."""
        return json.dumps(asdict(self)).encode("ascii")

    @classmethod
    def decode(cls, raw: bytes) -> BuildProcess | None:
        """Return what a note says, shortened and fit to be printed; None if it is no note."""
        try:
            said: Any = json.loads(raw)
            texts = {name: _printable(said.get(name, "")) for name in ("host", "program", "kind", "name")}
            found = cls(pid=int(said["pid"]), since_ns=int(said["since_ns"]), **texts)
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            return None
        return found if found.host and 0 <= found.since_ns < 1 << 63 and 0 < found.pid < 1 << 32 else None


@dataclass(frozen=True, slots=True)
class RunningBuild:
    """An entry that is being built: by whom, if that one left a note, and who waits for it."""

    digest: str
    builder: BuildProcess | None
    waiters: tuple[BuildProcess, ...]


class BuildNotes:
    """The notes of a store. One that cannot be written is of no consequence."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def builder(self, digest: str) -> BuildProcess | None:
        """Return who noted last that it builds an entry; it may be dead."""
        try:
            with self._folders.inside("locks", _BUILDING) as folder:
                return BuildProcess.decode(_read(folder / digest)[0])
        except OSError:
            return None

    @contextmanager
    def building(self, digest: str, who: BuildProcess) -> Iterator[BuildProcess | None]:
        """Say that this process, which holds the lock, builds an entry; give the note of one that died of it."""
        before = self.builder(digest)
        with suppress(OSError):
            os.close(self._create(_BUILDING, digest, who))
        try:
            yield before
        finally:
            self._remove(_BUILDING, digest)

    @contextmanager
    def waiting(self, digest: str, who: BuildProcess) -> Iterator[None]:
        """Say that this process waits for an entry."""
        name, fd = f"{digest}.{os.urandom(6).hex()}", -1
        with suppress(OSError):
            fd = self._create(_WAITING, name, replace(who, since_ns=time.time_ns()))
        try:
            yield
        finally:
            if fd >= 0:
                self._remove(_WAITING, name)
                with suppress(OSError):
                    os.close(fd)

    def running_builds(self) -> list[RunningBuild]:
        """Return what is being built now, the longest first.

        Raises:
            OSError: the locks cannot be read.
        """
        waiters: dict[str, list[BuildProcess]] = {}
        for name in self._names(_WAITING):
            if who := self._live_process(name):
                waiters.setdefault(name.partition(".")[0], []).append(who)
        found = []
        for digest in {*self._names(_BUILDING), *waiters}:
            if self._is_locked(digest):
                waiting = sorted(waiters.get(digest, ()), key=lambda who: who.since_ns)
                found.append(RunningBuild(digest, self.builder(digest), tuple(waiting)))
        return sorted(found, key=lambda flight: (flight.builder.since_ns if flight.builder else 0, flight.digest))

    def _live_process(self, name: str) -> BuildProcess | None:
        with suppress(OSError), self._folders.inside("locks", _WAITING) as folder:
            raw, held = _read(folder / name)
            return BuildProcess.decode(raw) if held else None
        return None

    def _is_locked(self, digest: str) -> bool:
        with suppress(OSError), self._folders.inside("locks", digest[:2]) as folder:
            return _read(folder / f"{digest}.lock")[1]
        return False

    def _names(self, kind: str) -> list[str]:
        try:
            with self._folders.inside("locks", kind) as folder:
                names = os.listdir(folder)  # noqa: PTH208  # names alone are wanted
        except FileNotFoundError:
            return []
        return [name for name in names if len(name) >= 64 and set(name[:64]) <= set("0123456789abcdef")]

    def _create(self, kind: str, name: str, who: BuildProcess) -> int:
        """Make a note, in place of any other of its name, and return its descriptor, which is locked."""
        try:
            with self._folders.inside("locks", kind) as folder:
                return _write(folder / name, who.encode())
        except FileNotFoundError:
            with self._folders.inside("locks", kind, make=True) as folder:
                return _write(folder / name, who.encode())

    def _remove(self, kind: str, name: str) -> None:
        with suppress(OSError), self._folders.inside("locks", kind) as folder:
            (folder / name).unlink()


def _write(path: Path, data: bytes) -> int:
    path.unlink(missing_ok=True)
    fd = os.open(path, _MAKE, 0o600)
    try:
        os.fchmod(fd, file_mode(path.parent))
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, data)
    except OSError:
        os.close(fd)
        raise
    return fd


def _read(path: Path) -> tuple[bytes, bool]:
    """Return the beginning of a file, and whether somebody holds its lock."""
    fd = os.open(path, _READ)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b"", False
        held = False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            held = True
        return os.read(fd, _MAX_BYTES), held
    finally:
        os.close(fd)


def _printable(text: object) -> str:
    return "".join(one if one.isprintable() else "?" for one in str(text)[:_MAX_TEXT])
