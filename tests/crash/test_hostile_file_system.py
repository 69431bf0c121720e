"""A store on a file system that loses replies, forgets handles, refuses locks and lists what was: nothing is wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.guest import content_of, key_of
from tests.effort import tries
from trtcache.store.catalog import load_records
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore
from trtcache.store.root import filesystem_type

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torture

PROJECT = Path(__file__).parents[2]
PROCESSES, STEPS = 2, tries(60, 5_000)


def _missing() -> str:
    """Return why nothing can be mounted here, or nothing."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    try:
        found = importlib.util.find_spec("mfusepy") and __import__("mfusepy")
    except (OSError, AttributeError) as error:  # it looks for the library when it is imported
        return f"libfuse is missing: {error}"
    return "" if found else "mfusepy is not installed"


class Mounted:
    """The file system, mounted at ``place``."""

    def __init__(self, folder: Path) -> None:
        """Mount it, or skip the test and say so loudly."""
        self.place, self._faults = folder / "place", folder / "faults.json"
        for path in (folder / "below", self.place):
            path.mkdir()
        command = [sys.executable, "-m", "tests.crash.hostile", folder / "below", self.place, "7"]
        self._server = subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True)
        while not os.path.ismount(self.place):
            if self._server.poll() is not None:
                pytest.skip(f"NOTHING HOSTILE WAS MOUNTED: {self._server.communicate()[1].strip()[-300:]}")
            time.sleep(0.02)

    def turn(self) -> None:
        """Make it hostile, or end that."""
        self._faults.unlink(missing_ok=True)
        self._server.send_signal(signal.SIGUSR1)
        while not self._faults.exists():
            self.place.stat()  # its one thread looks for signals between calls
            time.sleep(0.02)

    @property
    def faults(self) -> dict[str, int]:
        """How often it did what."""
        found: dict[str, int] = json.loads(self._faults.read_text())
        return found

    def end(self) -> None:
        """Unmount it."""
        undo = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*undo, self.place], check=True)
        self._server.communicate(timeout=60)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    """The file system, on a directory of this test's own."""
    if why := _missing():
        pytest.skip(f"NOTHING HOSTILE WAS MOUNTED: {why}")
    made = Mounted(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_it_costs_builds_and_nothing_else(mounted: Mounted, capsys: pytest.CaptureFixture[str]) -> None:
    """Every byte is right, a pin that was made keeps its entry, and afterwards the store is sound by itself."""
    root = mounted.place / "store"
    assert filesystem_type(mounted.place).startswith("fuse")
    assert DiskStore.open(root).can_store_builds  # locks are tried while it behaves
    mounted.turn()
    command = [sys.executable, "-W", "error", "-m", "tests.crash.guest", root]
    started = [
        subprocess.Popen([*command, str(seed), str(STEPS)], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
        for seed in range(PROCESSES)
    ]
    said = [process.communicate(timeout=60 + STEPS)[0] for process in started]
    assert [process.returncode for process in started] == [0] * PROCESSES
    mounted.turn()
    done, pinned = Counter[str](), set[int]()
    for counted, pins in map(json.loads, said):
        done += Counter(counted)
        pinned |= set(pins)
    store = DiskStore.open(root)
    assert {key_of(number).digest for number in pinned} <= store.pins()
    for number in pinned:
        found = store.get(key_of(number))
        assert isinstance(found, Entry), (number, found)
        assert found.read() == content_of(number)
    records = load_records(store)
    assert {record.digest for record in records} == {stored.digest for stored in store.scan()}
    for record in records:
        store.check(record.digest)
    store.sweep(temporary_s=-1)
    assert not list(root.rglob(".tmp-*"))
    with capsys.disabled():
        faults = ", ".join(f"{count} x {how}" for how, count in sorted(mounted.faults.items()) if count)
        sys.stdout.write(f"\na hostile file system, {PROCESSES} processes: {dict(done)}, {faults}: nothing wrong\n")
