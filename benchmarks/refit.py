"""Memory and seconds of a refit, and of a large member on its way into the store and out of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, span, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

PROCESS = "benchmarks.refit_process"
MODELS = ("linear", "convolution")
WAYS = ("module", "file")


def measure(folder: Path, effort: Effort) -> Samples:
    """Return seconds and memory, each of a new process."""
    shared = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    figures = []
    for model in MODELS:
        sys.stderr.write(f"  {model}: build\n")
        child(PROCESS, "build", model, str(folder), environment=shared)
        for turn in effort.turns():
            for way in WAYS:
                sys.stderr.write(f"  {model}: round {turn + 1}: {way}\n")
                taken = child(PROCESS, way, model, str(folder), environment=shared | {"TRTCACHE_FORBID_BUILD": "1"})
                figures.append({f"{model}.{way}.{name}": value for name, value in taken.items()})
    for way in ("put", "get"):
        sys.stderr.write(f"  store: {way}\n")
        taken = child(PROCESS, way, "", str(folder), environment=shared)
        figures.append({f"store.{way}.{name}": value for name, value in taken.items()})
    return gathered(figures)


_REFIT = """\
## Memory of a refit, and of the store

Anonymous and shared memory (`RssAnon` and `RssShmem`, looked at every millisecond) at the most, beyond what there was
before and what is there afterwards, in units of the largest weight. Mapped files, which the system can drop, do not
count. `aot_inductor` on the CPU; the first refits of a process are not measured.
"""

_SLACK_BYTES = 1 << 20  # what Python itself takes meanwhile


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    labels = {"linear": "as they are", "convolution": "made by recipes"}
    rows = []
    for model, label in labels.items():
        for way in ("module", "file"):
            find = {name: median(figures, f"{model}.{way}.{name}_bytes") for name in ("extra", "largest", "weights")}
            what = f"{find['weights'] / 1e6:.0f} MB, {label}, from a {way}"
            found = f"{find['extra'] / find['largest']:.2f} weights in {span(figures[f'{model}.{way}.refit_s'])}"
            kept = find["extra"] <= find["largest"] + _SLACK_BYTES
            rows.append(Promise(what, found, "at most one weight more", kept).row)
    for way, what in (("put", "into the store"), ("get", "out of it, verified, and into a file")):
        extra_bytes = median(figures, f"store.{way}.extra_bytes")
        found = f"{extra_bytes / 1e6:.1f} MB in {span(figures[f'store.{way}.seconds_s'])}"
        rows.append(Promise(f"3 GB {what}", found, "at most 64 MB", extra_bytes <= 64e6).row)
    return "\n".join([_REFIT, table(("memory", "found", "promised", "kept"), rows)])
