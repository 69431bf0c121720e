"""``trtcache tune`` beside the same calls measured by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, span, spread, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

PROCESS = "benchmarks.tune_process"


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the figures of a new process for each round, in which both ways take turns."""
    environment = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    child(PROCESS, "build", environment=environment)
    return gathered(child(PROCESS, "measure", environment=environment) for _ in effort.turns())


_TUNE = """\
## `trtcache tune` beside a measurement by hand

MiniLM. `tune`'s own code and a plain loop take turns in each process; with two runners that is two
threads of a script that call the module. Latencies are medians of calls.
"""


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    rows, kept = [], []
    for threads, runners in ((1, 1), (2, 1), (1, 2)):
        name, label = f"threads_{threads}_runners_{runners}", f"{threads} threads, {runners} runners"
        tuned, hand = (median(figures, f"{name}.{way}_median_s") for way in ("tune", "hand"))
        tuned_per_s, hand_per_s = (median(figures, f"{name}.{way}_per_s_count") for way in ("tune", "hand"))
        latencies = (span(figures[f"{name}.{way}_median_s"]) for way in ("tune", "hand"))
        rates = (spread(figures[f"{name}.{way}_per_s_count"]) for way in ("tune", "hand"))
        rows.append((label, *latencies, *rates))
        worst = max(abs(tuned / hand - 1), abs(tuned_per_s / hand_per_s - 1))
        kept.append(Promise(f"{label}, off by", f"{worst:.1%}", "at most 15 %", worst <= 0.15))
    header = ("", "latency, `tune`", "by hand", "calls in a second, `tune`", "by hand")
    return "\n".join([_TUNE, table(header, rows), promised(*kept)])
