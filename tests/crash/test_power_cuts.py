"""A store on a real ext4 file system, cut off from power at any call: what it acknowledged is there, nothing is wrong.

Each cut is the file system's own emergency stop (``EXT4_IOC_SHUTDOWN`` without flushing its log, which its
maintainers test with): what was not synced is lost, and the next mount replays the journal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.effort import tries

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torture

HERE = Path(__file__).parent
CUT = ["first put", "second put", "put alone", "replace", "put that prunes", "copy up", "prune", "pin", "unpin"]
CUT += ["sync", "rebuild index", "migrate index"]
UNSYNCED = "renamed unsynced"


def _without_power() -> str:
    """Return why no power can be cut here, or nothing."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    missing = [tool for tool in ("gcc", "mkfs.ext4", "losetup", "umount") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} missing"
    return "" if Path("/dev/loop-control").exists() else "there are no loop devices"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A loop device with a file system of 32 MB, and where to mount it."""
    if why := _without_power():
        pytest.skip(f"NO POWER WAS CUT: {why}")
    directory = tmp_path_factory.mktemp("disk")
    image, place = directory / "image", directory / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
    attached = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=False)
    if attached.returncode:
        pytest.skip(f"NO POWER WAS CUT: {attached.stderr.strip()}")
    device = attached.stdout.strip()
    yield device, place
    subprocess.run(["umount", "-q", "-l", place], check=False)
    subprocess.run(["losetup", "--detach", device], check=True)


def cut(disk: tuple[str, Path], names: list[str], most: int) -> dict[str, tuple[int, int, list[str]]]:
    """Return for each scenario how many calls it makes, how many cuts there were, and what was wrong."""
    device, place = disk
    shim = place.with_name("shim.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", shim, HERE / "shim.c", "-ldl"], check=True)
    command = [sys.executable, "-m", "tests.crash.power", shim, device, place, str(most), *names]
    environ = os.environ | {"LD_PRELOAD": str(shim)}
    done = subprocess.run(command, env=environ, cwd=HERE.parents[1], stdout=subprocess.PIPE, check=True)
    found: dict[str, tuple[int, int, list[str]]] = json.loads(done.stdout)
    return found


def test_a_power_cut_loses_nothing_that_was_acknowledged(
    disk: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """After any cut the store opens by itself, has all it acknowledged, serves nothing wrong and takes the next put."""
    rounds = tries(1, 3)
    found = [cut(disk, CUT, tries(5, 0)) for _ in range(rounds)]
    assert [(name, wrong) for one in found for name, (_, _, wrong) in one.items() if wrong] == []
    cuts = sum(tried for one in found for _, tried, _ in one.values())
    with capsys.disabled():
        calls = sum(calls for calls, _, _ in found[0].values())
        sys.stdout.write(f"\n{cuts} power cuts at {min(cuts, calls)} of {calls} calls: nothing lost, nothing wrong\n")


def test_a_store_that_does_not_sync_is_caught(disk: tuple[str, Path]) -> None:
    """The same cuts find the fault of a writer that renames a file which was never synced."""
    (_, _, wrong) = cut(disk, [UNSYNCED], 0)[UNSYNCED]
    assert any("one:" in one for one in wrong)
