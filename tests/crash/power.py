"""Cut a mounted file system off from power before each of a scenario's calls, mount it again, and look at the store.

Run under the shim: ``LD_PRELOAD=shim.so python -m tests.crash.power SHIM DEVICE MOUNTED MOST SCENARIO...``; see
``fork_server.py`` for what MOST is and what is printed.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import os
import shutil
import struct
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.aftermath import problems
from tests.crash.fork_server import NEVER, NOT_REACHED, REACHED, Shim, points_of, run_child
from tests.crash.newer import schema
from tests.crash.scenarios import SCENARIOS, Scenario, fetch, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_NO_LOG_FLUSH = struct.pack("I", 2)


class Disk:
    """A file system on a loop device."""

    def __init__(self, device: str, place: Path) -> None:
        """Keep which it is and where it is mounted. The C library mounts: two processes for each cut take longer."""
        self._device, self._place = device.encode(), os.fsencode(place)
        self._libc = ctypes.CDLL(None, use_errno=True)

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount it and give a path in it; on leaving it is unmounted, with everything written."""
        self._try(self._libc.mount(self._device, self._place, b"ext4", 0, None))
        try:
            yield Path(os.fsdecode(self._place)) / "store"
        finally:
            self._try(self._libc.umount2(self._place, 0))

    @staticmethod
    def _try(result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def cut(self) -> None:
        """Stop it at once: what was not synced is lost."""
        directory = os.open(self._place, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(directory)


def begin(disk: Disk, template: Path, scenario: Scenario) -> None:
    """Put what the scenario begins with on the disk, synced."""
    with disk.mounted() as root:
        for old in (root, root.with_name("elsewhere"), root.with_name("below")):
            if old.exists():
                shutil.rmtree(old)
        if scenario.before:
            shutil.copytree(template, root)
            root.chmod(0o700)
        if scenario.below:
            shutil.copytree(template.with_name("below"), root.with_name("below"))
            root.with_name("below").chmod(0o700)


def looked_at(root: Path, scenario: Scenario, acknowledged: set[str]) -> list[str]:
    """Return what is wrong, found by a child: no file of the disk stays open here."""
    answers, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers)
        try:
            found = problems(root, scenario, acknowledged, refused=False)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            found = [f"{type(error).__name__}: {error}"]
        with os.fdopen(told, "w") as pipe:
            pipe.write(json.dumps(found))
        os._exit(0)
    os.close(told)
    with os.fdopen(answers) as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    return [str(one) for one in json.loads(written)]


def explore(shim: Shim, disk: Disk, directory: Path, name: str, most: int) -> tuple[int, int, list[str]]:
    """Cut the power before the calls of a scenario, and after the last one."""
    scenario, template = SCENARIOS[name], directory / "template"
    prepare(template, scenario)
    with schema(newer=scenario.newer):
        return _explored(shim, disk, template, name, most)


def _explored(shim: Shim, disk: Disk, template: Path, name: str, most: int) -> tuple[int, int, list[str]]:
    scenario = SCENARIOS[name]
    begin(disk, template, scenario)
    with disk.mounted() as root:
        _, calls, status = run_child(shim, NEVER, scenario, root)
    wrong = [] if status == NOT_REACHED else [f"left alone it ends with {status}"]
    points = sorted({*points_of(name, calls + 1, most), calls + 1})
    for point in points:
        begin(disk, template, scenario)
        with disk.mounted() as root:
            acknowledged, _, status = run_child(shim, point, scenario, root)
            disk.cut()
        if status not in (REACHED, NOT_REACHED, -9):
            wrong.append(f"call {point}: the child ended with {status}")
        with disk.mounted() as root:
            wrong += [f"call {point}: {problem}" for problem in looked_at(root, scenario, acknowledged)]
    return calls, len(points), wrong


def main() -> None:
    """Explore the scenarios named on the command line."""
    logging.disable()
    path, device, place, most, *names = sys.argv[1:]
    shim, disk = Shim.of(path, "kill"), Disk(device, Path(place))
    base = Path(place).with_name("scratch")
    shutil.rmtree(base, ignore_errors=True)
    fetch(base / "warm", "warm", max_size_bytes=1)  # imports all that is imported on the way
    results = {}
    for name in names:
        own = base / name.replace(" ", "-")
        own.mkdir()
        results[name] = explore(shim, disk, own, name, int(most))
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
