"""From a model to its first output: trtcache, ``torch.compile``, torch's own package loader, and eager.

Every figure is from a new process; the ways take turns, so that a slower minute of the machine is everybody's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLD_ROUNDS = 3
PROCESS = "benchmarks.model_process"


def measure(folder: Path, rounds: int) -> Samples:
    """Return the seconds of each way, as ``way.part_s``."""
    shared = _environment(folder, "shared")
    child(PROCESS, "trtcache", environment=shared)
    child(PROCESS, "torch_compile", environment=shared)
    child(PROCESS, "extract", str(folder), environment=shared)
    figures = []
    for turn in range(rounds):
        for way, process, environment in _ways(folder, turn, shared):
            sys.stderr.write(f"  round {turn + 1} of {rounds}: {way}\n")
            taken = child(PROCESS, process, str(folder), environment=environment)
            figures.append({f"{way}.{name}": value for name, value in taken.items()})
    return gathered(figures)


def _ways(folder: Path, turn: int, shared: dict[str, str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield what is compared: its name, how the process is called, and what caches it finds."""
    yield "hit", "trtcache", shared | {"TRTCACHE_FORBID_BUILD": "1"}
    yield "raw", "raw", shared
    yield "torch_compile_warm", "torch_compile", shared
    yield "eager", "eager", shared
    if turn < COLD_ROUNDS:
        yield "cold", "trtcache", _environment(folder, f"cold-{turn}")
        yield "torch_compile_cold", "torch_compile", _environment(folder, f"torch-cold-{turn}")


def _environment(folder: Path, name: str) -> dict[str, str]:
    return {"TRTCACHE_DIR": str(folder / name / "trtcache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / name / "inductor")}
