"""Single-flight locks for builds: of all threads and processes that need one key, one builds and the others wait.

The kernel's lock on a permanent file is used. It is released when its holder exits for any reason, so a waiter behind
a killed leader becomes the leader.

Status files next to the locks say which process builds an entry and which ones wait for it. They are informational: a
builder's file is valid while the entry's lock is held, a waiter's while its own file is locked. Anyone who can write
to a store can write any status file, so its content is untrusted input.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BuildCancelledError, LockTimeoutError
from trtcache.progress import Step, watcher
from trtcache.store.files import Folders, file_mode, hold

if TYPE_CHECKING:
    from trtcache.config.units import ContentionPolicy
    from trtcache.digests import CacheKey
    from trtcache.store.disk import DiskStore

_logger = logging.getLogger("trtcache.cache")

NOTICE_EVERY_S = 10.0
_WATCHED_EVERY_S = 1.0

OnWait: TypeAlias = Callable[["BuildProcess | None", float], object]
"""Callback for waiters: the process that seems to build, and the seconds waited so far. An exception ends the wait."""

NOTES = _BUILDING, _WAITING = "building", "waiting"
"""Directories of the status files, next to those of the locks."""
_MAX_BYTES = 8192  # four texts of 128 characters, each written in up to twelve bytes, and the rest
_MAX_TEXT = 128
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen_dataclass
class Turn:
    """An acquired build lock: the time waited, and the previous holder if it died while it built."""

    waited_s: float
    left_by: BuildProcess | None = None


@contextmanager
def turn(
    folders: Folders,
    digest: str,
    who: BuildProcess,
    *,
    timeout_s: float | None = None,
    on_wait: OnWait | None = None,
    notice_every_s: float = NOTICE_EVERY_S,
) -> Iterator[Turn]:
    """Hold the build lock of a key, and write status files of the builder and the waiters."""
    notes = BuildNotes(folders)
    with ExitStack() as stack:
        with ExitStack() as meanwhile:
            noted: list[None] = []

            def notice(waited_s: float) -> None:
                if not noted:
                    noted.append(meanwhile.enter_context(notes.waiting(digest, who)))
                if on_wait is not None:
                    on_wait(notes.builder(digest), waited_s)

            folder = stack.enter_context(folders.inside("locks", digest[:2], make=True))
            lock = flight(folder / f"{digest}.lock", timeout_s=timeout_s, notice=notice, notice_every_s=notice_every_s)
            waited_s = stack.enter_context(lock)
        yield Turn(waited_s, stack.enter_context(notes.building(digest, who)))


@contextmanager
def flight(
    path: Path,
    *,
    timeout_s: float | None = None,
    notice: Callable[[float], object] = lambda _: None,
    notice_every_s: float = NOTICE_EVERY_S,
) -> Iterator[float]:
    """Hold the lock file ``path`` while the body runs, and yield the seconds waited. Not reentrant.

    ``notice`` is called with the seconds waited when the wait begins, and repeatedly while it lasts.

    Raises:
        LockTimeoutError: another process held it for ``timeout_s`` seconds.
        OSError: the lock file cannot be created, or the file system has no locks.
        Exception: any exception of ``notice``.
    """
    began_s, step_s = time.monotonic(), 0.0
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(hold(path, timeout_s=step_s))
                break
            except LockTimeoutError as error:
                waited_s = time.monotonic() - began_s
                if timeout_s is not None and waited_s >= timeout_s:
                    raise LockTimeoutError(str(path), waited_s) from error
            notice(waited_s)
            step_s = notice_every_s if timeout_s is None else min(notice_every_s, timeout_s - waited_s)
        yield time.monotonic() - began_s if step_s else 0.0


class WaitReporter:
    """Report one process's wait for one entry. ``every_s`` is the interval between calls."""

    def __init__(self, key: CacheKey, busy: ContentionPolicy) -> None:
        self._key, self._busy = key, busy
        self._watcher = watcher()
        self._next_s = 0.0
        self.every_s = _WATCHED_EVERY_S if self._watcher else NOTICE_EVERY_S

    def __call__(self, who: BuildProcess | None, waited_s: float) -> None:
        """Report the wait.

        Raises:
            BuildCancelledError: the watcher cancelled the wait.
            Exception: any exception of the watcher.
        """
        whom = str(who) if who else "another process"
        text = f"waiting for {whom}, {waited_s:.0f} s"
        if waited_s >= self._next_s:
            program = f", by {who.program}" if who and who.program else ""
            what = f"{self._key.kind} {self._key.digest[:16]}{program}"
            limit = ""
            if not self._next_s and self._busy.patience_s:
                # The first message says what happens after the timeout.
                then = "runs without an engine" if self._busy.policy == "eager" else "builds for itself"
                limit = f"; after {self._busy.patience_s:.0f} s {self._busy.rank or 'it'} {then}"
            _logger.info("%s (%s)%s", text, what, limit)
            self._next_s = waited_s + NOTICE_EVERY_S * 0.99
        if self._watcher is not None and self._watcher(Step(text, 0, 0)) is False:
            raise BuildCancelledError(self._key.kind, f"while it waited for {whom}")


@contextmanager
def hold_build_lock(store: DiskStore, key: CacheKey, *, name: str, busy: ContentionPolicy) -> Iterator[None]:
    """Hold the build lock of a key while the body runs; count waits, and takeovers from builders that died.

    Raises:
        LockTimeoutError: another process held it for as long as ``busy`` allows to wait.
        OSError: the lock cannot be acquired.
        BuildCancelledError: a watcher cancelled the wait.
    """
    waiting, who = WaitReporter(key, busy), BuildProcess.here(kind=key.kind, name=name)
    lock = store.flight(key.digest, who=who, timeout_s=busy.patience_s, on_wait=waiting, notice_every_s=waiting.every_s)
    with ExitStack() as stack:
        try:
            turn = stack.enter_context(lock)
        except LockTimeoutError as error:
            if busy.patience_s:
                store.events.append("wait", reason="timeout", kind=key.kind, key=key.digest, waited_s=error.waited_s)
            raise
        if turn.waited_s:
            store.events.append("wait", kind=key.kind, key=key.digest, waited_s=turn.waited_s)
        if turn.left_by is not None:
            _logger.warning("%s died while it built %s %s", turn.left_by, key.kind, key.digest[:16])
            store.events.append("takeover", kind=key.kind, key=key.digest)
        yield


@frozen_dataclass
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
        """Encode as JSON, with its texts truncated."""
        document = {name: text[:_MAX_TEXT] if isinstance(text, str) else text for name, text in asdict(self).items()}
        return json.dumps(document).encode("ascii")

    @classmethod
    def decode(cls, raw: bytes) -> BuildProcess | None:
        """Decode a status file, with its texts truncated and made printable; None if it is malformed."""
        try:
            document: Any = json.loads(raw)
            texts = {name: str(document.get(name, ""))[:_MAX_TEXT] for name in ("host", "program", "kind", "name")}
            texts = {name: "".join(c if c.isprintable() else "?" for c in text) for name, text in texts.items()}
            process = cls(pid=int(document["pid"]), since_ns=int(document["since_ns"]), **texts)
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            return None
        valid = process.host and 0 <= process.since_ns < 1 << 63 and 0 < process.pid < 1 << 32
        return process if valid else None


@frozen_dataclass
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
        try:
            with suppress(OSError):
                os.close(self._create(_BUILDING, digest, who))
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
        """List the builds in progress, longest first."""
        waiters: dict[str, list[BuildProcess]] = {}
        for name in self._names(_WAITING):
            with suppress(OSError), self._folders.inside("locks", _WAITING) as folder:
                raw, held = _read(folder / name)
                if held and (who := BuildProcess.decode(raw)):
                    waiters.setdefault(name.partition(".")[0], []).append(who)
        found = []
        for digest in {*self._names(_BUILDING), *waiters}:
            locked = False
            with suppress(OSError), self._folders.inside("locks", digest[:2]) as folder:
                locked = _read(folder / f"{digest}.lock")[1]
            if locked:
                waiting = sorted(waiters.get(digest, ()), key=lambda who: who.since_ns)
                found.append(RunningBuild(digest, self.builder(digest), tuple(waiting)))
        return sorted(found, key=lambda flight: (flight.builder.since_ns if flight.builder else 0, flight.digest))

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
