"""Measurements of ``trtcache doctor PATH``: how a directory's file system behaves for two processes of this machine."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from trtcache.config.frozen import frozen_dataclass

_ROUNDS = 20
_REPLACEMENTS = 200
_CONTENT_BYTES = 4 * 4096
LONGEST_RELEASE_S = 10.0


@frozen_dataclass
class Measured:
    """Results of the tests of a directory.

    Attributes:
        rounds: attempts of the other process to take a lock that this one holds.
        excluded: attempts that were refused, as they should be.
        refusal: the kernel's error if files cannot be locked; empty otherwise.
        freed_s: seconds until the lock of a killed process was free; None if it stayed, or was not tested.
        replaced: how often a file was replaced by renaming another.
        reads: how often the other process read it meanwhile.
        torn: reads that failed, or had a mix of contents.
        seen_s: seconds until the other process saw a new file; None if it never did.
        ahead_s: how far file times are ahead of this machine's clock.
        sync_s: seconds to write a small file durably.
        links: whether hard links work.
        modes: whether mode bits are kept.
    """

    rounds: int
    excluded: int
    refusal: str
    freed_s: float | None
    replaced: int
    reads: int
    torn: int
    seen_s: float | None
    ahead_s: float
    sync_s: float
    links: bool
    modes: bool

    @property
    def locks(self) -> bool:
        """Whether locks exclude other processes, and are released with their holder."""
        return self.excluded == self.rounds and self.freed_s is not None


class PeerProcess:
    """The second process, which runs ``peer.py``: it reads commands from its standard input, and prints answers."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-I", str(Path(__file__).with_name("peer.py")), str(directory)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603  # this Python
        self.answer()

    def tell(self, line: str) -> None:
        """Send a command without waiting."""
        assert self.process.stdin is not None  # noqa: S101  # made with a pipe
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Wait for its next line.

        Raises:
            ChildProcessError: it has ended, such as by an error of a network file system.
        """
        assert self.process.stdout is not None  # noqa: S101  # made with a pipe
        line = self.process.stdout.readline().strip()
        if not line:
            raise ChildProcessError(errno.ECHILD, "the second process has ended")
        return line

    def ask(self, line: str) -> str:
        """Send a command, and return the answer."""
        self.tell(line)
        return self.answer()

    def kill(self) -> None:
        """Kill it, as the kernel does when memory is short."""
        with self.process:
            self.process.kill()


def measure(directory: Path) -> Measured:
    """Test a directory that this process can write to. The caller removes the files created in it.

    Raises:
        OSError: a file cannot be created, written or renamed there, or the second process has ended.
    """
    other = PeerProcess(directory)
    try:
        excluded, refusal = _test_locks(directory, other)
        reads, torn = _test_replacing(directory, other)
        seen_s = _time_until_seen(directory, other)
        freed_s = None if refusal else _time_release(directory, other)
    finally:
        other.kill()
    ahead_s, sync_s = _time_writing(directory)
    return Measured(
        rounds=_ROUNDS,
        excluded=excluded,
        refusal=refusal,
        freed_s=freed_s,
        replaced=_REPLACEMENTS,
        reads=reads,
        torn=torn,
        seen_s=seen_s,
        ahead_s=ahead_s,
        sync_s=sync_s,
        links=_has_hard_links(directory),
        modes=_keeps_modes(directory),
    )


def _test_locks(directory: Path, other: PeerProcess) -> tuple[int, str]:
    """Return how often the other process could not take a held lock, and the error if files cannot be locked."""
    excluded = 0
    for _ in range(_ROUNDS):
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                return 0, error.strerror or str(error)
            said = other.ask("lock lock")
        finally:
            os.close(fd)
        if said.startswith("error "):
            return 0, said.removeprefix("error ")
        excluded += said == "refused"
        if said == "held":
            other.ask("unlock")
    return excluded, ""


def _time_release(directory: Path, other: PeerProcess) -> float | None:
    """Return the seconds after which a killed process's lock is free."""
    if other.ask("lock lock") != "held":
        return None
    began_s = time.monotonic()
    other.kill()
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        while time.monotonic() - began_s < LONGEST_RELEASE_S:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return time.monotonic() - began_s
            time.sleep(0.001)
    finally:
        os.close(fd)
    return None


def _test_replacing(directory: Path, other: PeerProcess) -> tuple[int, int]:
    """Return how often a file was read while it was replaced, and how many reads saw neither content."""
    target = directory / "replaced"
    target.write_bytes(b"a" * _CONTENT_BYTES)
    other.ask("read replaced")
    for number in range(_REPLACEMENTS):
        temporary = directory / "temporary"
        temporary.write_bytes(bytes([number]) * _CONTENT_BYTES)
        temporary.rename(target)
    (directory / "done").touch()
    reads, torn = other.answer().split()
    return int(reads), int(torn)


def _time_until_seen(directory: Path, other: PeerProcess) -> float | None:
    """Return the seconds until a process that looked for a file before it existed sees it."""
    other.ask("see new")
    (directory / "temporary").write_bytes(b"new")
    (directory / "temporary").rename(directory / "new")
    published_s = time.monotonic()  # the clock is the same in all processes of a machine
    said = other.answer()
    return None if said == "never" else max(0.0, float(said) - published_s)


def _time_writing(directory: Path) -> tuple[float, float]:
    """Return how far the file system's clock is ahead, and the seconds to write a small file durably."""
    began_s, earliest_s = time.monotonic(), time.time()
    with (directory / "written").open("wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
        written_s, latest_s = os.fstat(file.fileno()).st_mtime, time.time()
    # 0 if the file's time is between the start and the end of the write
    ahead_s = written_s - min(max(written_s, earliest_s), latest_s)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return ahead_s, time.monotonic() - began_s


def _has_hard_links(directory: Path) -> bool:
    with suppress(OSError):
        (directory / "linked").hardlink_to(directory / "written")
        return (directory / "linked").stat().st_nlink == 2
    return False


def _keeps_modes(directory: Path) -> bool:
    """Return whether mode bits for privacy and for group access are kept."""
    folder = directory / "folder"
    folder.mkdir(mode=0o700)
    private = stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o2770)
    return private and stat.S_IMODE(folder.stat().st_mode) == 0o2770
