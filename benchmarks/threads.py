"""Calls side by side on one engine: throughput of one and two runners, memory, and answers of 10,000 calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, spread, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

PROCESS = "benchmarks.threads_process"


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the figures of a new process for each round; one and two runners take turns within it."""
    environment = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    child(PROCESS, "build", environment=environment)
    figures = [child(PROCESS, "throughput", environment=environment) for _ in effort.turns()]
    for one in figures:
        one["runners_ratio"] = one["two_runners_per_s_count"] / one["one_runner_per_s_count"]
        one["processes_ratio"] = one["two_processes_per_s_count"] / one["one_runner_per_s_count"]
        one["loader_ratio"] = one["two_threads_by_the_loader_per_s_count"] / one["one_runner_per_s_count"]
    memory = child(PROCESS, "memory", environment=environment)
    memory["memory_ratio"] = memory["added_bytes"] / memory["weights_bytes"]
    return gathered([*figures, memory, child(PROCESS, "answers", environment=environment)])


_THREADS = """\
## Calls side by side

Twelve layers with 50 MB of weights, and with {megabytes} MB for the memory; one intra-op thread for each call, CPU. One
and two runners take turns in each process. `torch's loader` is two threads that call the module without runners. Two
runners had {cores:.2f} cores: with fewer than two, because other work had the rest, they cannot be twice as fast. Two
processes share no lock of Python's: they are what the cores and their memory give at the most, {processes:.2f}x one
runner here.
"""


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    ways = {
        "two_threads_by_the_loader": "two threads, torch's loader",
        "one_runner": "one runner",
        "two_runners": "two runners",
        "two_processes": "two processes, with the weights twice",
    }
    rows = [(label, spread(figures[f"{way}_per_s_count"])) for way, label in ways.items()]
    ratio, memory = median(figures, "runners_ratio"), median(figures, "memory_ratio")
    wrong, calls = median(figures, "wrong_count"), median(figures, "calls_count")
    kept = [
        Promise("two runners, of one", f"{ratio:.2f}x", "at least 1.6x", ratio >= 1.6),
        Promise(
            "memory that two runners add, of the weights", f"{memory:.2f}x", "at most 0.2x; 1x if copied", memory <= 0.2
        ),
        Promise(f"wrong answers of {calls:,.0f} calls of 8 threads", f"{wrong:.0f}", "0", wrong == 0),
    ]
    return "\n".join(
        [
            _THREADS.format(
                megabytes=round(median(figures, "weights_bytes") / 1e6),
                cores=median(figures, "cores_used_ratio"),
                processes=median(figures, "processes_ratio"),
            ),
            table(("way", "calls in a second"), rows),
            promised(*kept),
        ]
    )
