"""What there is to measure, one subject in a process: ``python -m benchmarks.subjects NAME ROUNDS BUDGET_S FILE``.

A process of its own keeps what one leaves behind (memory, threads, a crash) from the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.effort import Effort
from benchmarks.timing import clean_environment, summarised

if TYPE_CHECKING:
    from benchmarks.report import Figures


@dataclass(frozen=True, slots=True)
class Subject:
    """What a subject is, how many rounds it has at the most, and how long it begins new ones."""

    about: str
    rounds: int = 5
    budget_s: float = 60


SUBJECTS = {
    "start": Subject("from the start of a process to its first output: five models, ten ways (8 GB)", 10, 900),
    "builds": Subject("a first build in a fresh container: five models (8 GB)", 2, 420),
    "background": Subject("calls beside a build in the background: five models (8 GB)", 1, 300),
    "calls": Subject("later calls of engines with refittable, packed and frozen weights: six models (8 GB)", 1, 600),
    "direct": Subject("recording for direct mode, and its keys and replays (8 GB)"),
    "file": Subject("from a program's file to its first output"),
    "store": Subject("puts and gets beside others' caches and files (8 GB)", budget_s=90),
    "checks": Subject("the input checks of a call"),
    "key": Subject("passes and key of a graph"),
    "keys": Subject("keys of graphs of 10,000 and 100,000 nodes, beside torch's"),
    "threads": Subject("throughput, memory and answers of runners", 3, 90),
    "tune": Subject("trtcache tune beside measurements by hand", 3),
    "partition": Subject("four parts built one after the other and side by side", 3),
    "ls": Subject("trtcache ls and trtcache report of 10,000 entries"),
    "warm": Subject("plans of 1,000 cells, and the overhead of a cell that hits", 5, 60),
    "footprint": Subject("import time and size of an install"),
    "refit": Subject("memory of refits, and of 3 GB in and out of the store (8 GB)", 2),
    "export": Subject("memory of writing and loading programs with engines of 1 and 3 GB (8 GB)", 3, 40),
    "remote": Subject("a compile with a remote beside sccache's and ccache's, and with one that fails", 3, 150),
    "plan": Subject("memory of a build of TensorRT-RTX (8 GB)", 3, 40),
}
"""Module of this package, which has ``measure`` and ``section`` -> what it measures."""

TAKES_THE_REST = {"start"}
"""What is measured last: the time that is left decides how many rounds it has."""


def run(name: str, effort: Subject) -> Figures | None:
    """Measure a subject in a new process, and return its figures; nothing when it failed, which has been shown."""
    with tempfile.TemporaryDirectory(prefix=f"trtcache-bench-{name}-") as folder:
        found = Path(folder) / "figures.json"
        arguments = [name, str(effort.rounds), str(effort.budget_s), str(found)]
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.subjects", *arguments]
        done = subprocess.run(command, env=clean_environment(), check=False)
        if done.returncode != 0 or not found.exists():
            return None
        figures: Figures = json.loads(found.read_text())
        return figures


def main(name: str, rounds: str, budget_s: str, found: str) -> None:
    """Measure one subject and write its figures into the file; files of its own go beside it."""
    effort = Effort.of(int(rounds), budget_s=float(budget_s))
    place = Path(found).parent / name
    place.mkdir()
    samples = import_module(f"benchmarks.{name}").measure(place, effort)
    Path(found).write_text(json.dumps(summarised(samples)))


if __name__ == "__main__":
    main(*sys.argv[1:])
