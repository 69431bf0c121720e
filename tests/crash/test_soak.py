"""Many processes on one store, some of them killed and some stopped: no wrong byte, no deadlock, nothing left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.effort import tries
from trtcache.store.catalog import load_records
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torture

SOAK = Path(__file__).with_name("soak.py")
PROCESSES, DURATION_S = tries(4, 8), float(tries(6, 600))


def start(root: Path, seed: int, duration_s: float) -> subprocess.Popen[str]:
    """Start one process."""
    command = [sys.executable, "-W", "error", SOAK, root, str(seed), str(duration_s)]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("TRTCACHE_")}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def disturb(processes: list[subprocess.Popen[str]], root: Path, until_s: float) -> int:
    """Kill or stop a process at random times, and start another for each that was killed; return how many were."""
    chance, killed = random.Random(7), 0
    while time.monotonic() < until_s:
        time.sleep(chance.uniform(0.05, 0.25))
        victim = chance.randrange(1, len(processes))  # the first is left alone
        if chance.random() < 0.5:
            processes[victim].send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.0, 0.1))
            processes[victim].send_signal(signal.SIGCONT)
            continue
        processes[victim].kill()
        processes[victim].communicate()
        killed += 1
        processes[victim] = start(root, killed + 100, until_s - time.monotonic())
    return killed


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in memory where there is such, so that four processes wait for each other and not for a disk."""
    memory = Path("/dev/shm")  # noqa: S108  # a directory of our own is made in it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory) / "cache"


def test_processes_that_are_killed_and_stopped_share_a_store(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They put, get, prune, verify and damage; what is served is right, nothing grows, what is left is sound."""
    until_s = time.monotonic() + DURATION_S
    processes = [start(root, seed, DURATION_S) for seed in range(PROCESSES)]
    killed = disturb(processes, root, until_s)
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [
        (process.returncode, errors)
        for process, (_, errors) in zip(processes, outputs, strict=True)
        if process.returncode
    ] == []
    steps, files_early, kib_early, files_late, kib_late = json.loads(outputs[0][0])
    assert steps > 20
    assert killed > 3
    assert files_late <= files_early + 2
    assert kib_late < kib_early + 20_000
    with capsys.disabled():
        shown = f"{steps} steps of one, {killed} killed, {files_early} then {files_late} files open"
        sys.stdout.write(f"\n{PROCESSES} processes, {DURATION_S:.0f} s: {shown}, {kib_early} then {kib_late} KiB\n")
    store = DiskStore.open(root)
    records = load_records(store)
    assert {record.digest for record in records} == {stored.digest for stored in store.scan()}
    store.sweep(temporary_s=-1)
    assert not list(root.rglob(".tmp-*"))
