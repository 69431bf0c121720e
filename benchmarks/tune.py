"""``trtcache tune`` beside the same calls measured by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

PROCESS = "benchmarks.tune_process"


def measure(folder: Path, rounds: int) -> Samples:
    """Return the figures of a new process for each round, in which both ways take turns."""
    environment = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    child(PROCESS, "build", environment=environment)
    return gathered(child(PROCESS, "measure", environment=environment) for _ in range(rounds))
