"""Memory and seconds of a refit, and of a large member on its way into the store and out of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

PROCESS = "benchmarks.refit_process"
MODELS = ("linear", "convolution")
WAYS = ("module", "file")


def measure(folder: Path, rounds: int) -> Samples:
    """Return seconds and memory, each of a new process."""
    shared = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    figures = []
    for model in MODELS:
        sys.stderr.write(f"  {model}: build\n")
        child(PROCESS, "build", model, str(folder), environment=shared)
        for turn in range(min(rounds, 3)):
            for way in WAYS:
                sys.stderr.write(f"  {model}: round {turn + 1}: {way}\n")
                taken = child(PROCESS, way, model, str(folder), environment=shared | {"TRTCACHE_FORBID_BUILD": "1"})
                figures.append({f"{model}.{way}.{name}": value for name, value in taken.items()})
    for way in ("put", "get"):
        sys.stderr.write(f"  store: {way}\n")
        taken = child(PROCESS, way, "", str(folder), environment=shared)
        figures.append({f"store.{way}.{name}": value for name, value in taken.items()})
    return gathered(figures)
