"""From a model to its first output: trtcache, ``torch.compile``, torch's own package loader, and eager.

Every figure is from a new process; the ways take turns, so that a slower minute of the machine is everybody's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.report import Figures

COLD_ROUNDS = 1
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


WAYS = {
    "cold": "`trtcache.compile`, cold: it builds",
    "hit": "`trtcache.compile`, hit",
    "raw": "torch's package loader, the same package",
    "torch_compile_cold": "`torch.compile`, cold",
    "torch_compile_warm": "`torch.compile`, its own caches warm",
    "eager": "eager",
}

PARTS = {
    "export_s": "`torch.export`",
    "decompose_s": "its decompositions",
    "lower_s": "passes and slots",
    "key_s": "key",
    "fetch_s": "fetch: find, read, verify",
    "load_s": "load, weights put in",
    "rest_s": "everything else in `compile`",
    "first_s": "first output",
}

_MODEL = """\
## From a model to its first output

all-MiniLM-L6-v2 (6 layers, 22.7 million weights), 8 sentences of 16 tokens, float32, CPU. Each figure is from new
processes which took turns. The clock runs from the call of `compile` (or of the loader) to the first output; importing
torch and reading the weights come before it. All run with `OMP_WAIT_POLICY=passive`.

![Seconds to the first output](benchmarks.svg)
"""


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    ways = [
        (label, span(figures[f"{way}.total_s"]), seconds(median(figures, f"{way}.call_s")))
        for way, label in WAYS.items()
    ]
    parts = [(label, span(figures[f"hit.{part}"])) for part, label in PARTS.items()]
    parts.append(("**without export and decompositions**", span(figures["hit.own_s"])))
    return "\n".join(
        [
            _MODEL,
            table(("way", "to the first output", "a later call"), ways),
            "Where a hit spends it:\n",
            table(("part", "time"), parts),
            promised(*promises(figures)),
        ]
    )


def promises(figures: Figures) -> list[Promise]:
    """Return what is promised of a hit without export and decompositions, from the medians of one run."""
    own_s = median(figures, "hit.own_s")
    torch_ratio = median(figures, "torch_compile_warm.total_s") / own_s
    raw_ratio = own_s / median(figures, "raw.total_s")
    hit = "a hit to its first output, export and decompositions aside"
    return [
        Promise(hit, seconds(own_s), "at most 60 ms", own_s <= 0.060),
        Promise("`torch.compile` with warm caches takes", f"{torch_ratio:.0f}x that", "50x or more", torch_ratio >= 50),
        Promise("it takes, of the raw load and first run", f"{raw_ratio:.2f}x", "at most 2x", raw_ratio <= 2),
    ]
