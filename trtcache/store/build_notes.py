"""Status files of running builds: which process builds an entry, and which ones wait for it.

They are informational. The kernel's locks decide which processes are alive: a builder's file is valid while the entry's
lock is held, a waiter's while its own file is locked. Anyone who can write to a store can write any status file, so its
content is untrusted input.
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
"""Directories of the status files, next to those of the locks."""

_MAX_BYTES = 4096
_MAX_TEXT = 128
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class BuildProcess:
    """A process that builds or waits, since when, and the kind and name of the entry."""

    host: str
    pid: int
    program: str
    since_ns: int
    kind: str = ""
    name: str = ""

    @classmethod
    def here(cls, *, kind: str = "", name: str = "") -> BuildProcess:
        """Describe this process, starting now."""
        program = Path(sys.argv[0]).name if getattr(sys, "argv", None) else ""
        return cls(os.uname().nodename, os.getpid(), program, time.time_ns(), kind, name)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

    def encode(self) -> bytes:
        """Encode as JSON."""
        return json.dumps(asdict(self)).encode("ascii")

    @classmethod
    def decode(cls, raw: bytes) -> BuildProcess | None:
        """Decode a status file, with its texts truncated and made printable; None if it is malformed."""
        try:
            document: Any = json.loads(raw)
            texts = {name: _printable(document.get(name, "")) for name in ("host", "program", "kind", "name")}
            process = cls(pid=int(document["pid"]), since_ns=int(document["since_ns"]), **texts)
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            return None
        valid = process.host and 0 <= process.since_ns < 1 << 63 and 0 < process.pid < 1 << 32
        return process if valid else None


@dataclass(frozen=True, slots=True)
class RunningBuild:
    """An entry that is being built, its builder if that left a status file, and the waiting processes."""

    digest: str
    builder: BuildProcess | None
    waiters: tuple[BuildProcess, ...]


class BuildNotes:
    """Status files of a store. A failure to write one is ignored."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def builder(self, digest: str) -> BuildProcess | None:
        """Return the last process that announced a build of this entry; it may be dead."""
        try:
            with self._folders.inside("locks", _BUILDING) as folder:
                return BuildProcess.decode(_read(folder / digest)[0])
        except OSError:
            return None

    @contextmanager
    def building(self, digest: str, who: BuildProcess) -> Iterator[BuildProcess | None]:
        """Announce a build by this process, which holds the lock; yield the process that died building it, if any."""
        before = self.builder(digest)
        with suppress(OSError):
            os.close(self._create(_BUILDING, digest, who))
        try:
            yield before
        finally:
            self._remove(_BUILDING, digest)

    @contextmanager
    def waiting(self, digest: str, who: BuildProcess) -> Iterator[None]:
        """Announce that this process waits for an entry."""
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
        """List the builds in progress, longest first.

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
                names = os.listdir(folder)  # noqa: PTH208  # only the names are needed
        except FileNotFoundError:
            return []
        return [name for name in names if len(name) >= 64 and set(name[:64]) <= set("0123456789abcdef")]

    def _create(self, kind: str, name: str, who: BuildProcess) -> int:
        """Create a status file, replacing one of the same name, and return its locked descriptor."""
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
    """Return the beginning of a file, and whether another process holds its lock."""
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
    return "".join(char if char.isprintable() else "?" for char in str(text)[:_MAX_TEXT])
