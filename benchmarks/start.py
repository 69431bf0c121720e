"""From the start of a process to its first output, for five models, in ten ways."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.report import median, seconds, span, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from benchmarks.report import Figures

PROCESS, ONNXRUNTIME = "benchmarks.start_process", "benchmarks.start_onnxruntime"
MODELS = {
    "minilm": "MiniLM",
    "resnet": "ResNet-18",
    "vit": "ViT-S/16",
    "gpt2": "GPT-2",
    "bert": "BERT of 1 GB",
}
WARM_ROUNDS = 3

WAYS = {
    "eager": "eager",
    "torch_compile_cold": "`torch.compile`, cold",
    "torch_compile_warm": "`torch.compile`, its own caches warm",
    "mega_cache": "`torch.compile`, its saved artifacts loaded",
    "onnxruntime": "ONNX Runtime, the optimised model saved",
    "raw": "torch's package loader, the same package",
    "cold": "`trtcache.compile`, cold: it builds",
    "slow": "`trtcache.compile`, hit, `TRTCACHE_DIRECT=off`",
    "direct": "`trtcache.compile`, hit, direct",
    "file": "`trtcache.compile(path)`, a hit",
}
"""Name of a way -> what the page calls it."""

_TEXT = """\
## From the start of a process to its first output

{models}, float32, {device}; weights are random but MiniLM's, and read from a file that the system has in memory. Each
figure is the median of {rounds} new processes that took turns; what is cold was done once. First the whole process,
from its start: Python, torch and its imports, the model, and what the way does. In brackets from the call of `compile`
(or of the loader) to the first output. ONNX Runtime's process has no torch in it; the artifacts that `torch.compile`
saves for a CPU have no compiled C++ in them, so that it compiles again. All of torch's outputs were compared with
eager's.

![Seconds from the call to the first output](benchmarks-start.svg)
"""


def measure(folder: Path, rounds: int) -> Samples:
    """Return seconds as ``model.way.call_s`` and ``model.way.process_s``."""
    figures = []
    asked = os.environ.get("BENCHMARK_MODELS", "")
    for name in asked.split(",") if asked else MODELS:
        place = folder / name
        place.mkdir()
        figures += [
            {f"{name}.{what}": value for what, value in one.items()}
            for one in _model(name, place, min(rounds, WARM_ROUNDS))
        ]
        shutil.rmtree(place)
    return gathered(figures)


def _model(name: str, folder: Path, rounds: int) -> Iterator[dict[str, float]]:
    shared = _environment(folder, "shared")
    yield child(PROCESS, "weights", name, str(folder), environment=shared)
    for process, way in (("prepare", "cold"), ("prepare_onnx", ""), ("prepare_artifacts", "torch_compile_cold")):
        if process == "prepare_onnx" and not _has_onnxruntime():
            continue
        sys.stderr.write(f"  {name}: {process}\n")
        taken = _taken(process, name, folder, shared)
        yield {f"{way}.{what}": value for what, value in taken.items()}
    for turn in range(rounds):
        for way, process, environment in _ways(folder, turn, shared):
            sys.stderr.write(f"  {name}, round {turn + 1} of {rounds}: {way}\n")
            yield {f"{way}.{what}": value for what, value in _taken(process, name, folder, environment).items()}


def _taken(process: str, name: str, folder: Path, environment: dict[str, str]) -> dict[str, float]:
    began = {"BENCHMARK_BEGAN_S": repr(time.time())}
    if process == "onnxruntime":
        return child(ONNXRUNTIME, str(folder), environment=environment | began)
    return child(PROCESS, process, name, str(folder), environment=environment | began)


def _ways(folder: Path, turn: int, shared: dict[str, str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield a way, how its process is called, and what caches that finds."""
    hit = shared | {"TRTCACHE_FORBID_BUILD": "1"}
    yield "eager", "eager", shared
    yield "torch_compile_warm", "torch_compile", shared
    yield "mega_cache", "mega_cache", _environment(folder, f"mega-{turn}")
    if _has_onnxruntime():
        yield "onnxruntime", "onnxruntime", shared
    yield "raw", "raw", shared
    yield "slow", "compiled", hit | {"TRTCACHE_DIRECT": "off"}
    yield "direct", "compiled", hit
    yield "file", "file", hit


def _has_onnxruntime() -> bool:
    """Say whether it is measured: on the CPU, for which it is installed."""
    return os.environ.get("BENCHMARK_DEVICE", "cpu") == "cpu"


def _environment(folder: Path, name: str) -> dict[str, str]:
    return {"TRTCACHE_DIR": str(folder / name / "trtcache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / name / "inductor")}


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    models = {name: label for name, label in MODELS.items() if f"{name}.direct.call_s" in figures}
    ways = {way: label for way, label in WAYS.items() if f"{next(iter(models))}.{way}.call_s" in figures}
    rows = [
        (label, *(f"{seconds(_of(figures, name, way, 'process'))} ({_call(figures, name, way)})" for name in models))
        for way, label in ways.items()
    ]
    sizes = ", ".join(
        f"{label} ({median(figures, f'{name}.weights_bytes') / 1e6:.0f} MB)" for name, label in models.items()
    )
    spans = [
        (label, *(span(figures[f"{name}.{way}.call_s"]) for name in models))
        for way, label in ways.items()
        if way in {"torch_compile_warm", "raw", "slow", "direct", "file"}
    ]
    return "\n".join(
        [
            _TEXT.format(
                models=sizes,
                device=os.environ.get("BENCHMARK_DEVICE", "cpu").upper(),
                rounds=len(figures[f"{next(iter(models))}.direct.call_s"]["values"]),
            ),
            table(("process (call)", *models.values()), rows),
            "The call alone, with the least and the most:\n",
            table(("call", *models.values()), spans),
            "How many times shorter the call is in direct mode:\n",
            table(("than", *models.values()), _ratios(figures, models, ways)),
        ]
    )


def _ratios(figures: Figures, models: Iterable[str], ways: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for way, label in ways.items():
        if way not in {"direct", "eager"}:
            ratios = (_of(figures, name, way, "call") / _of(figures, name, "direct", "call") for name in models)
            yield label, *(f"{ratio:.3g}x" for ratio in ratios)


def _of(figures: Figures, name: str, way: str, what: str) -> float:
    return median(figures, f"{name}.{way}.{what}_s")


def _call(figures: Figures, name: str, way: str) -> str:
    return seconds(_of(figures, name, way, "call"))
