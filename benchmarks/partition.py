"""Four independent parts of a program, built one after the other and side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

PROCESS = "benchmarks.partition_process"


def measure(folder: Path, rounds: int) -> Samples:
    """Return the figures of new processes with new caches; the two ways take turns."""
    figures = []
    for number in range(min(rounds, 3)):
        found: dict[str, float] = {}
        for way, processes in (("one", 1), ("two", 2)):
            place = folder / f"{way}-{number}"
            environment = {"TRTCACHE_DIR": str(place / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor")}
            found |= child(PROCESS, way, str(processes), environment=environment)
        found["build_ratio"] = found["one_s"] / found["two_s"]
        figures.append(found)
    return gathered(figures)
