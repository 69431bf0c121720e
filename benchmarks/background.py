"""Builds in the background: when ``compile`` returns, and calls beside the build, for five models."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from benchmarks.report import Figures, Promise, median, promised, seconds, span, table
from benchmarks.start_page import MODELS
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort

_TEXT = """\
## A build in the background

`trtcache.compile(model, inputs, on_miss="background")` with an empty cache, in new processes; float32, CPU. Until the
engine takes over, calls of the module take turns with calls of the model; the worker has niceness 10 and one thread.
"""

_ROWS = {
    "export_s": "`torch.export`",
    "before_export_s": "`compile` before it, imports included",
    "after_export_s": "`compile` after it",
    "ready_s": "until the engine takes over",
    "alone_median_s": "eager before the build: median",
    "alone_p99_s": "eager before the build: p99",
    "eager_median_s": "eager beside the build: median",
    "eager_p99_s": "eager beside the build: p99",
    "call_median_s": "the module beside the build: median",
    "call_p99_s": "the module beside the build: p99",
    "call_most_s": "the module beside the build: longest call",
    "after_median_s": "the module with its engine: median",
}


def measure(folder: Path, effort: Effort) -> Samples:
    """Return figures as ``model.what``."""
    names = os.environ.get("BENCHMARK_MODELS") or ",".join(MODELS)
    found: list[dict[str, float | list[float]]] = []
    for name in names.split(","):
        (folder / name).mkdir()
        child("benchmarks.start_models", name, str(folder / name / "weights"))
    for turn in effort.turns():
        for name in names.split(","):
            own = folder / f"{name}-{turn}"
            own.mkdir()
            (own / "weights").symlink_to(folder / name / "weights")
            variables = {"TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"), "TMPDIR": str(own)}
            figures = child("benchmarks.background_process", name, str(own), environment=variables)
            sys.stderr.write(f"  {name}: {figures}\n")
            found.append({f"{name}.{what}": value for what, value in figures.items()})
    return gathered(found)


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    models = {name: label for name, label in MODELS.items() if f"{name}.ready_s" in figures}
    rows = [(label, *(span(figures[f"{name}.{what}"]) for name in models)) for what, label in _ROWS.items()]
    slowest_s = max(median(figures, f"{name}.after_export_s") for name in models)
    bad = sum(median(figures, f"{name}.{what}") for name in models for what in ("fake_count", "errors_count"))
    calls = sum(median(figures, f"{name}.calls_count") for name in models)
    ratio = max(median(figures, f"{name}.call_p99_s") / median(figures, f"{name}.eager_p99_s") for name in models)
    promises = (
        Promise("`compile` after the export", seconds(slowest_s), "at most 50 ms", slowest_s <= 0.05),
        Promise(f"fake tensors and errors in {calls:.0f} calls", f"{bad:.0f}", "0", not bad),
        Promise("p99 of a call, of eager's beside the same build", f"{ratio:.2f}x", "at most 1.5x", ratio <= 1.5),
    )
    return "\n".join([_TEXT, table(("", *models.values()), rows), promised(*promises)])
