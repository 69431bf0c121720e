"""``trtcache doctor PATH``: a directory's file system, measured by two processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.store.mounts import mounted, read_only
from trtcache_cli.directory_checks import guarantees, measurement_checks
from trtcache_cli.measurements import Measured, PeerProcess, measure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

SOUND = Measured(
    rounds=20,
    excluded=20,
    refusal="",
    freed_s=0.01,
    replaced=200,
    reads=300,
    torn=0,
    seen_s=0.01,
    ahead_s=0.0,
    sync_s=0.01,
    links=True,
    modes=True,
)


def test_a_local_directory_promises_everything(run: Callable[..., Result], tmp_path: Path) -> None:
    """No test file is left, and the exit code is 0."""
    done = run("doctor", tmp_path, "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert (done.code, done.json["ok"]) == (0, True), done.out
    assert {check["status"] for check in done.json["checks"]} == {"ok"}
    assert checks["locks between processes"]["found"] == "20 of 20 attempts to take a held lock were refused"
    assert checks["shared building"]["found"].startswith("yes: one process builds")
    assert checks["index"]["found"] == "in the store"
    assert list(tmp_path.iterdir()) == []


def test_locks_are_measured_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this process's locks exclude no other process, that is detected."""
    monkeypatch.setattr("fcntl.flock", lambda _fd, _how: None)
    seen = measure(tmp_path)
    assert (seen.excluded, seen.locks) == (0, False)


@pytest.mark.parametrize(
    ("changed", "bad"),
    [
        pytest.param({"excluded": 19}, {"locks between processes", "shared building"}, id="locks"),
        pytest.param(
            {"excluded": 0, "refusal": "Not supported"}, {"locks between processes", "shared building"}, id="no"
        ),
        pytest.param({"freed_s": None}, {"lock of a killed process", "shared building"}, id="stays"),
        pytest.param({"torn": 3}, {"replacing a file", "entries"}, id="torn"),
        pytest.param({"modes": False}, {"modes"}, id="modes"),
        pytest.param({"seen_s": None, "ahead_s": 90.0, "links": False}, set(), id="slow"),
    ],
)
def test_measurements_decide_the_guarantees(tmp_path: Path, changed: dict[str, float], bad: set[str]) -> None:
    """Bad results make the exit code 1; slow or inexact ones are only reported."""
    seen = replace(SOUND, **changed)
    checks = [*measurement_checks(seen), *guarantees(seen, local=True, path=tmp_path)]
    assert {check.name for check in checks if check.status == "bad"} == bad
    slow = {"a new file is seen", "clock of its files"} if "seen_s" in changed else set()
    assert {check.name for check in checks if check.status == "note"} >= slow
    assert all(check.advice or check.found for check in checks)


def test_a_lock_that_stays_and_no_locks_are_told_apart(tmp_path: Path) -> None:
    """Without locks a release is not tested; a lock that stays excludes all others."""

    def found(**changed: Any) -> dict[str, str]:
        seen = replace(SOUND, **changed)
        checks = [*measurement_checks(seen), *guarantees(seen, local=True, path=tmp_path)]
        return {check.name: check.found for check in checks}

    none = found(excluded=0, refusal="Not supported", freed_s=None)
    assert none["lock of a killed process"] == "not tested: there are no locks"
    assert "two processes can hold one lock" in none["shared building"]
    stays = found(freed_s=None)
    assert stays["lock of a killed process"] == "still held after 10 s"
    assert "two processes" not in stays["shared building"]


def test_an_error_of_the_other_process_is_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported as if this process had it."""
    ask = PeerProcess.ask
    refuse = "error No locks available"
    monkeypatch.setattr(PeerProcess, "ask", lambda self, line: refuse if line == "lock lock" else ask(self, line))
    seen = measure(tmp_path)
    assert (seen.excluded, seen.refusal, seen.freed_s) == (0, "No locks available", None)


@pytest.mark.parametrize("last", ["lock lock", "read replaced", "see new"])
def test_a_second_process_that_ends_is_named(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """It is no file system without locks, and no internal error."""
    tell = PeerProcess.tell

    def tell_or_kill(other: PeerProcess, line: str) -> None:
        if line == last:
            other.process.kill()
        else:
            tell(other, line)

    monkeypatch.setattr(PeerProcess, "tell", tell_or_kill)
    done = run("doctor", tmp_path)
    assert (done.code, done.rows[-1][:2]) == (1, ["measuring", "bad"]), done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["read replaced", "see new"])
def test_the_second_process_ends_with_the_first(tmp_path: Path, command: str) -> None:
    """Its standard input ends when the first one is killed, whatever it is doing."""
    other = PeerProcess(tmp_path)
    try:
        other.ask(command)
        assert other.process.stdin is not None
        other.process.stdin.close()
        assert other.process.wait(10) == 0
    finally:
        other.kill()


def test_the_second_process_does_not_read_for_ever(tmp_path: Path) -> None:
    """It answers in time, although nothing says that the file is replaced no more."""
    code = "from trtcache_cli import peer; peer.LONGEST_S = 0.1; peer.main()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("read replaced\n")
        process.stdin.flush()
        stopper = threading.Timer(20, process.kill)
        stopper.start()
        lines = [process.stdout.readline().strip() for _ in range(3)]
        stopper.cancel()
        process.stdin.close()
    assert lines[:2] == ["ready", "reading"]
    reads, bad = map(int, lines[2].split())
    assert reads == bad > 0


def test_a_slow_write_is_no_wrong_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may set the time of a file when its content arrives."""

    def fsync(fd: int) -> None:
        time.sleep(0.5)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.utime(fd)

    monkeypatch.setattr("os.fsync", fsync)
    assert abs(measure(tmp_path).ahead_s) < 0.3


def test_a_network_file_system_gets_an_index_for_each_host(tmp_path: Path) -> None:
    """And its engines are read, and whether machines exclude each other cannot be seen from one."""
    found = {check.name: check.found for check in guarantees(SOUND, local=False, path=tmp_path)}
    assert found["index"] == "private, for each user and host"
    assert found["engines"] == "read into memory, never mapped"
    assert "between machines if" in found["shared building"]


def test_a_read_only_directory_serves_hits(run: Callable[..., Result], tmp_path: Path) -> None:
    """There is nothing to measure in a read-only directory, which is not a failure."""
    (tmp_path / "lower").mkdir()
    with read_only(tmp_path / "lower", tmp_path / "volume") as volume:
        done = run("doctor", volume, "--json")
    assert done.code == 0
    assert done.json["checks"][-1]["found"] == "not by this user: hits are served, nothing is stored"
    assert done.json["checks"][-1]["status"] == "note"


def test_a_full_directory_is_bad(run: Callable[..., Result], tmp_path: Path) -> None:
    """Without an inode left nothing can be measured, and the message is the kernel's."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "nr_inodes=2,size=64k", "none") as small:
        (small / "last").touch()
        done = run("doctor", small)
    assert (done.code, done.rows[1][:2]) == (1, ["space", "bad"])
    assert done.rows[-1][:3] == ["measuring", "bad", "failed: No space left on device"]


def test_a_path_that_is_not_a_directory_is_reported(run: Callable[..., Result], tmp_path: Path) -> None:
    """With the exit code of an unusable store."""
    done = run("doctor", tmp_path / "gone")
    assert done.code == 3
    assert "No such file or directory" in done.err
    assert list(tmp_path.iterdir()) == []
