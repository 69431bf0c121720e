"""Kill a process before each of its mutating calls, or let them go wrong, and look at the store that it leaves.

Run under the shim: ``LD_PRELOAD=shim.so python -m tests.crash.fork_server SHIM DIRECTORY MOST MODE SCENARIO...``, where
MODE is ``kill``, or ``one`` or ``all`` and how that call, or all from it on, go wrong: by the name of an errno, with a
``short`` write, a ``lying`` one, or a ``lost`` reply. Everything is imported once; each point is a forked child. A
child tells an oracle pipe what the store has acknowledged. MOST is how many points are tried of each scenario, drawn
by its name; 0 is all. Prints one JSON object: for each scenario how many calls it makes, how many of them were tried,
and what was wrong.
"""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.crash.aftermath import problems
from tests.crash.newer import schema
from tests.crash.scenarios import SCENARIOS, Scenario, fetch, prepare
from trtcache.errors import TrtcacheError

Arm: TypeAlias = Callable[[int], None]

NEVER = 1 << 30
REACHED, NOT_REACHED, REFUSED = 0, 3, 4
HOW = {"short": "short_at", "lying": "lie_at", "lost": "lose_at"}
"""How calls go wrong without an errno, and what arms the shim for that."""


@dataclass(frozen=True)
class Shim:
    """The preloaded library, armed in one mode."""

    arm: Arm
    calls: Callable[[], int]

    @classmethod
    def of(cls, path: str, mode: str) -> Shim:
        """Return the library at ``path``, which is preloaded, for a mode."""
        library = ctypes.CDLL(path)
        library.crash_at.argtypes = [ctypes.c_long]
        library.fail_at.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_int]
        library.crash_calls.restype = ctypes.c_long
        if mode == "kill":
            return cls(library.crash_at, library.crash_calls)
        which, how = mode.split()
        if how in HOW:
            function = getattr(library, HOW[how])
            function.argtypes = [ctypes.c_long, ctypes.c_long]
            return cls(lambda n: function(n, n if which == "one" else NEVER), library.crash_calls)
        code = getattr(errno, how)
        return cls(lambda n: library.fail_at(n, n if which == "one" else NEVER, code), library.crash_calls)


def run_child(shim: Shim, point: int, scenario: Scenario, root: Path) -> tuple[set[str], int, int]:
    """Run a scenario in a child that is armed for call ``point``.

    Returns:
        What it acknowledged, how many calls it made where that many are told, and how it ended.
    """
    oracle, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(oracle)
        shim.arm(point)
        try:
            scenario.run(root, lambda name: _tell(told, name))
        except BaseException as error:  # noqa: BLE001  # the parent counts it
            if scenario.refuses and isinstance(error, OSError | TrtcacheError):
                os._exit(REFUSED)
            traceback.print_exc()
            os._exit(1)
        calls = shim.calls()
        shim.arm(NEVER)
        _tell(told, f"calls {calls}")
        os._exit(REACHED if calls >= point else NOT_REACHED)
    os.close(told)
    with os.fdopen(oracle) as lines:
        told_lines = set(lines.read().split("\n")) - {""}
    counts = [int(line.removeprefix("calls ")) for line in told_lines if line.startswith("calls ")]
    acknowledged = {line for line in told_lines if not line.startswith("calls ")}
    return acknowledged, max(counts, default=0), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _tell(told: int, name: str) -> None:
    with suppress(OSError):  # this write may be the one that fails
        os.write(told, name.encode() + b"\n")


def copy_of(template: Path, root: Path, scenario: Scenario) -> None:
    """Make ``root`` what the scenario begins with."""
    shutil.rmtree(root, ignore_errors=True)
    if scenario.before:
        shutil.copytree(template, root)
        root.chmod(0o2770 if scenario.shared else 0o700)


def points_of(name: str, calls: int, most: int) -> Iterable[int]:
    """Return the calls to try: all, or as many as asked for, the same ones each time."""
    everything = range(1, calls + 1)
    return sorted(random.Random(name).sample(everything, most)) if 0 < most < calls else everything


def explore(shim: Shim, directory: Path, name: str, most: int) -> tuple[int, int, list[str]]:
    """Run a scenario for the calls that it makes; return how many those are, how many were tried, what was wrong."""
    scenario = SCENARIOS[name]
    template, root = directory / "template", directory / "root"
    prepare(template, scenario)
    with schema(newer=scenario.newer):
        return _explored(shim, template, root, name, most)


def _explored(shim: Shim, template: Path, root: Path, name: str, most: int) -> tuple[int, int, list[str]]:
    scenario = SCENARIOS[name]
    copy_of(template, root, scenario)
    acknowledged, calls, status = run_child(shim, NEVER, scenario, root)
    wrong = [] if status == NOT_REACHED and acknowledged else [f"left alone it ends with {status}"]
    points = points_of(name, calls, most)
    for point in points:
        copy_of(template, root, scenario)
        acknowledged, _, status = run_child(shim, point, scenario, root)
        if status not in (REACHED, NOT_REACHED, REFUSED, -9):
            wrong.append(f"call {point}: the child ended with {status}")
        try:
            found = problems(root, scenario, acknowledged, refused=status in (REACHED, REFUSED))
            wrong += [f"call {point}: {problem}" for problem in found]
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            wrong.append(f"call {point}: {type(error).__name__}: {error}")
    return calls, len(list(points)), wrong


def main() -> None:
    """Explore the scenarios named on the command line."""
    logging.disable()
    path, directory, most, mode, *names = sys.argv[1:]
    shim = Shim.of(path, mode)
    fetch(Path(directory) / "warm", "warm", max_size_bytes=1)  # imports all that is imported on the way
    results = {}
    for name in names:
        own = Path(directory) / name.replace(" ", "-")
        own.mkdir()
        results[name] = explore(shim, own, name, int(most))
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
