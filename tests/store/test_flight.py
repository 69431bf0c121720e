"""Single flight: one holder at a time, among threads and processes, whatever becomes of the holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from trtcache.errors import LockTimeoutError
from trtcache.store.single_flight import flight

if TYPE_CHECKING:
    from pathlib import Path


def holder_of(path: Path) -> subprocess.Popen[bytes]:
    """Start a process that holds the lock until it is killed, and wait until it does."""
    code = (
        "import pathlib, sys, time\n"
        "from trtcache.store.single_flight import flight\n"
        "with flight(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and close its pipe."""
    with process:
        process.kill()


def test_a_clock_that_is_set_ends_no_wait(tmp_path: Path) -> None:
    """A waiter waits for its full timeout even if the clock is set forward by three years at every poll."""
    holder = holder_of(tmp_path / "lock")
    code = (
        "import itertools, pathlib, sys, time\n"
        "now, jump = time.time, itertools.count(0, 10**8)\n"
        "time.time = lambda: now() + next(jump)\n"
        "from trtcache.store.single_flight import flight\n"
        "print('waits', flush=True)\n"
        "with flight(pathlib.Path(sys.argv[1]), timeout_s=30, notice_every_s=0.05):\n"
        "    print('held', flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "waits\n"
        time.sleep(0.3)
        end(holder)
        said, errors = waiter.communicate()
    assert (said, errors) == ("held\n", "")


def test_threads_are_excluded(tmp_path: Path) -> None:
    """Of eight threads, never two are in the body at once."""
    inside, most = [0], [0]

    def enter() -> None:
        with flight(tmp_path / "lock"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.005)
            inside[0] -= 1

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_a_waiter_gives_up_in_time(tmp_path: Path) -> None:
    """A waiter reports the time waited, and after its timeout the lock and the time."""
    told: list[float] = []
    process = holder_of(tmp_path / "lock")
    try:
        with (
            pytest.raises(LockTimeoutError) as caught,
            flight(tmp_path / "lock", timeout_s=0.2, notice=told.append, notice_every_s=0.05),
        ):
            pass
    finally:
        end(process)
    assert caught.value.path == str(tmp_path / "lock")
    assert caught.value.waited_s >= 0.2
    assert told
    assert told == sorted(told)


def test_a_killed_holder_is_succeeded(tmp_path: Path) -> None:
    """The lock ends with its holder, and its file stays."""
    process = holder_of(tmp_path / "lock")
    inode = (tmp_path / "lock").stat().st_ino
    threading.Timer(0.2, process.kill).start()
    with flight(tmp_path / "lock", timeout_s=20, notice_every_s=0.05) as waited_s:
        assert waited_s > 0
        assert (tmp_path / "lock").stat().st_ino == inode
    end(process)
    assert (tmp_path / "lock").exists()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A child that a build leaves behind, such as a compile worker, does not hold the lock with it."""
    with flight(tmp_path / "lock"):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with flight(tmp_path / "lock", timeout_s=0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_an_error_in_the_body_ends_the_lock(tmp_path: Path) -> None:
    """A build that fails lets the next one in."""
    with pytest.raises(ZeroDivisionError), flight(tmp_path / "lock"):
        raise ZeroDivisionError
    with flight(tmp_path / "lock", timeout_s=0):
        pass
