"""Four independent parts of a program, built one after the other and side by side, and run so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, span, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

PROCESS = "benchmarks.partition_process"


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the figures of new processes with new caches; the two ways take turns."""
    figures = []
    running = {"TRTCACHE_DIR": str(folder / "run"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    child(PROCESS, "run", environment=running)
    for number in effort.turns():
        found: dict[str, float] = {}
        for way, processes in (("one", 1), ("two", 2)):
            place = folder / f"{way}-{number}"
            environment = {"TRTCACHE_DIR": str(place / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor")}
            found |= child(PROCESS, way, str(processes), environment=environment)
        found["build_ratio"] = found["one_s"] / found["two_s"]
        found |= child(PROCESS, "run", environment=running)
        found["run_ratio"] = found["run_one_s"] / found["run_two_s"]
        figures.append(found)
    return gathered(figures)


_PARTITION = """\
## Parts built and run side by side

Four encoders that meet in an operator that stays in torch: four engines, built one after the other in one process, or
two at once, each time in a new process with empty caches. Export and lowering are not in it; starting processes is.
Run, they take turns in one process, with one intra-op thread for each engine and `inter` 1 or 2; the largest has
half of the work, so that two cannot be twice as fast as one.
"""


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    ratio = median(figures, "build_ratio")
    kept = Promise("build by two processes, of one", f"{ratio:.2f}x", "at least 1.5x", ratio >= 1.5)
    rows = [
        ("one after the other", span(figures["one_s"]), _call(figures, "one")),
        ("two at once", span(figures["two_s"]), _call(figures, "two")),
    ]
    return "\n".join([_PARTITION, table(("way", "build", "a call"), rows), promised(kept)])


def _call(figures: Figures, way: str) -> str:
    """Return what a call took, and how many times as fast that is; nothing in figures from before it was measured."""
    if f"run_{way}_s" not in figures:
        return ""
    took_s, one_s = median(figures, f"run_{way}_s"), median(figures, "run_one_s")
    return f"{span(figures[f'run_{way}_s'])}, {one_s / took_s:.2f}x"
