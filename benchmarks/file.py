"""From a program's file to its first output: by a memo, the long way, and as torch does it.

Every figure is from a new process; the ways take turns, so that a slower minute of the machine is everybody's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

PROCESS = "benchmarks.file_process"
WAYS = ("memo", "program", "torch")


def measure(folder: Path, rounds: int) -> Samples:
    """Return the seconds of each way, as ``way.part_s``."""
    shared = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    child(PROCESS, "save", str(folder), environment=shared)
    child(PROCESS, "memo", str(folder), environment=shared)
    figures = []
    for turn in range(rounds):
        for way in WAYS:
            sys.stderr.write(f"  round {turn + 1} of {rounds}: {way}\n")
            taken = child(PROCESS, way, str(folder), environment=shared | {"TRTCACHE_FORBID_BUILD": "1"})
            figures.append({f"{way}.{name}": value for name, value in taken.items()})
    return gathered(figures) | {"file_bytes": [float((folder / "model.pt2").stat().st_size)]}
