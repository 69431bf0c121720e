"""Calls side by side on one engine: throughput of one and two runners, memory, and answers of 10,000 calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

PROCESS = "benchmarks.threads_process"


def measure(folder: Path, rounds: int) -> Samples:
    """Return the figures of a new process for each round; one and two runners take turns within it."""
    environment = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    child(PROCESS, "throughput", environment=environment)
    figures = [child(PROCESS, "throughput", environment=environment) for _ in range(rounds)]
    for one in figures:
        one["runners_ratio"] = one["two_runners_per_s_count"] / one["one_runner_per_s_count"]
        one["processes_ratio"] = one["two_processes_per_s_count"] / one["one_runner_per_s_count"]
        one["loader_ratio"] = one["two_threads_by_the_loader_per_s_count"] / one["one_runner_per_s_count"]
    memory = child(PROCESS, "memory", environment=environment)
    memory["memory_ratio"] = memory["added_bytes"] / memory["weights_bytes"]
    return gathered([*figures, memory, child(PROCESS, "answers", environment=environment)])
