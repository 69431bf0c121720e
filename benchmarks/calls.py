"""Later calls of six models: eager, ``torch.compile``, and engines with refittable, packed and frozen weights."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.report import Figures, Promise, median, promised, span, table
from benchmarks.start_page import MODELS as FIVE
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.effort import Effort

MODELS = {**FIVE, "resnet8": "ResNet-18, batch 8"}
WAYS = {
    "eager": "eager",
    "torch_compile": "`torch.compile`",
    "refittable": "`trtcache.compile`",
    "packed": '`{"weights": "packed"}`',
    "frozen": '`{"weights": "frozen"}`',
    "autotuned": "frozen and `max_autotune`",
    "channels_last": "refittable, weights and input `channels_last`",
    "bfloat16": '`{"autocast": "bf16"}`',
}
"""Name of a way -> what the page calls it."""

_MOST = 1.05
_MOST_OF_FROZEN = 1.15
_TEXT = """\
## Later calls

Batch 1 (MiniLM: 8 sentences, or what the row says), {device}. In one process for each model the ways take turns, call
by call, 200 calls each after 5; a figure is the median of 10 batches of 20 calls, each the median of its calls, with
the least and the most in brackets. Results of each engine were compared with eager's. [performance.md](performance.md)
has the settings, and [cuda.md](cuda.md) the figures of GPUs.
"""
_SHORT = {
    "eager": "eager",
    "torch_compile": "`torch.compile`",
    "refittable": "refittable",
    "packed": "packed",
    "frozen": "frozen",
}


def measure(folder: Path, effort: Effort) -> Samples:
    """Return figures as ``model.way.call_s``."""
    device = os.environ.get("BENCHMARK_DEVICE") or "cpu"
    names = (os.environ.get("BENCHMARK_MODELS") or ",".join(FIVE)).split(",")
    found: list[dict[str, float | list[float]]] = [{"is_cuda_count": float(device == "cuda")}]
    for name in names:
        (folder / name).mkdir()
        child("benchmarks.start_models", name, str(folder / name / "weights"))
    for _ in effort.turns():
        for name in names:
            variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder / name / "inductor")}
            for what in (name, "resnet8") if name == "resnet" else (name,):
                figures = child("benchmarks.calls_process", what, str(folder / name), device, environment=variables)
                found.append({f"{what}.{figure}": value for figure, value in figures.items()})
    return gathered(found)


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    models = {name: label for name, label in MODELS.items() if f"{name}.eager.call_s" in figures}
    rows = [
        (label, *(_cell(figures, f"{name}.{way}.call_s") for name in models))
        for way, label in WAYS.items()
        if any(f"{name}.{way}.call_s" in figures for name in models)
    ]
    text = _TEXT.format(device="CUDA" if median(figures, "is_cuda_count") else "float32, CPU")
    return "\n".join([text, table(("", *models.values()), rows), promised(*_promises(figures, models))])


def short_table(figures: Figures) -> str:
    """Return the table of the README: median milliseconds of a call."""
    models = {name: label for name, label in MODELS.items() if f"{name}.eager.call_s" in figures}
    rows = []
    for way, label in _SHORT.items():
        names = [f"{model}.{way}.call_s" for model in models]
        rows.append((label, *(f"{median(figures, name) * 1e3:.3g}" if name in figures else "" for name in names)))
    return table(("ms", *models.values()), rows)


def _cell(figures: Figures, name: str) -> str:
    return span(figures[name]) if name in figures else ""


def _promises(figures: Figures, models: dict[str, str]) -> Iterator[Promise]:
    for name, label in models.items():
        best = min(("eager", "torch_compile"), key=lambda way: median(figures, f"{name}.{way}.call_s"))
        ratio, shown = _ratio(figures, name, "refittable", best)
        yield Promise(f"{label}: refittable, of {WAYS[best]}", shown, f"at most {_MOST}x", ratio <= _MOST)
        if f"{name}.packed.call_s" in figures:
            ratio, shown = _ratio(figures, name, "packed", "frozen")
            yield Promise(f"{label}: packed, of frozen", shown, f"at most {_MOST_OF_FROZEN}x", ratio <= _MOST_OF_FROZEN)
        for way in ("refittable", "packed"):
            if f"{name}.{way}.refit_differs_count" in figures:
                differs = median(figures, f"{name}.{way}.refit_differs_count")
                yield Promise(f"{label}: {way}, A, B, A: results that differ", f"{differs:.0f}", "0", not differs)


def _ratio(figures: Figures, name: str, way: str, other: str) -> tuple[float, str]:
    """Return the median ratio of two ways over the batches of calls, in which they took turns, and its range."""
    values, others = (figures[f"{name}.{one}.call_s"]["values"] for one in (way, other))
    ratios = sorted(one / beside for one, beside in zip(values, others, strict=True))
    middle = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2
    return middle, f"{middle:.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
