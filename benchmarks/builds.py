"""A first build in a fresh container, for five models: each process has an empty home and empty caches.

``BENCHMARK_BEFORE`` names another checkout of trtcache, whose builds take turns with these.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Figures, Promise, median, promised, span, table
from benchmarks.start_page import MODELS
from benchmarks.timing import Samples, clean_environment, gathered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.effort import Effort

WAYS = {
    "torch_compile_cold": "`torch.compile`",
    "before": "`trtcache.compile`, of another checkout",
    "cold": "`trtcache.compile`",
}
"""Name of a way -> what the page calls it."""

STEPS = {
    "export": "`torch.export` and decompositions",
    "lower": "passes and key",
    "import": "import of Inductor",
    "probe": "choice of instruction sets",
    "codegen": "Inductor's Python code",
    "compile": "C++ compiler",
    "link": "linker",
}
"""Name of a step of a build -> what the page calls it."""

_HERE = Path(__file__).parents[1]
_SHARE = 0.55
_TEXT = """\
## A first build in a fresh container

The call from `compile` to the first output, in new processes without any cache: no package, no probe and no precompiled
header of an earlier one; float32, {device}. Each output was compared with that of the others. `torch.compile` has no
cache either.
"""


def measure(folder: Path, effort: Effort) -> Samples:
    """Return figures as ``model.way.what``; the ways take turns, model by model."""
    asked = os.environ.get("BENCHMARK_MODELS", "")
    names = asked.split(",") if asked else list(MODELS)
    is_cuda = os.environ.get("BENCHMARK_DEVICE") == "cuda"
    figures = [{"is_cuda_count": float(is_cuda)}]
    for name in names:
        (folder / name).mkdir()
        _run("weights", name, folder / name, _HERE, folder / name)
    for turn in effort.turns():
        for name in names:
            for way, found in _round(name, folder / name, turn):
                figures.append({f"{name}.{way}.{what}": value for what, value in found.items()})
    return gathered(figures)


def _round(name: str, folder: Path, turn: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each way's figures of one model. The first of them writes the output that the others are compared with."""
    before = os.environ.get("BENCHMARK_BEFORE")
    ways = [("cold", "cold", _HERE), *([("before", "cold", Path(before))] if before else [])]
    for way, process, checkout in (*ways, ("torch_compile_cold", "torch_compile_cold", _HERE)):
        home = folder / f"{way}-{turn}"
        home.mkdir()
        yield way, _run(process, name, folder, checkout, home)


def _run(process: str, name: str, folder: Path, checkout: Path, home: Path) -> dict[str, float]:
    """Run a process of ``benchmarks.start_process`` of a checkout in an empty home, and return its figures."""
    began_s = time.time()
    environment = clean_environment(
        {
            "HOME": str(home),
            "TMPDIR": str(home),
            "TRTCACHE_DIR": str(home / "trtcache"),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "PYTHONPATH": os.pathsep.join(str(checkout / source) for source in (".", "cli", "migrations")),
            "BENCHMARK_BEGAN_S": repr(began_s),
        }
    )
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.start_process", process, name, str(folder)]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        return {"failed_count": 1.0}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    sys.stderr.write(f"  {name}: {process} of {checkout.name}: {time.time() - began_s:.1f} s {json.dumps(found)}\n")
    return found


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    models = {name: label for name, label in MODELS.items() if f"{name}.cold.call_s" in figures}
    ways = {way: label for way, label in WAYS.items() if any(f"{name}.{way}.call_s" in figures for name in models)}
    parts = [_TEXT.format(device="CUDA" if median(figures, "is_cuda_count") else "CPU")]
    for what, title in (("call_s", "the call"), ("process_s", "whole process")):
        rows = [(label, *(_cell(figures, f"{name}.{way}.{what}") for name in models)) for way, label in ways.items()]
        parts.append(table((title, *models.values()), rows))
    steps = [
        (label, *(_cell(figures, f"{name}.cold.{step}_s") for name in models))
        for step, label in STEPS.items()
        if any(f"{name}.cold.{step}_s" in figures for name in models)
    ]
    parts.append(table(("where trtcache's spends it", *models.values()), steps))
    parts.append(promised(*_promises(figures, models)))
    return "\n".join([*parts, *(f"Failed: {name}.\n" for name in figures if name.endswith("failed_count"))])


def _cell(figures: Figures, name: str) -> str:
    return span(figures[name]) if name in figures else "failed"


def _promises(figures: Figures, models: dict[str, str]) -> Iterator[Promise]:
    for name, label in models.items():
        own_s = median(figures, f"{name}.cold.call_s")
        if f"{name}.torch_compile_cold.call_s" in figures:
            ratio = own_s / median(figures, f"{name}.torch_compile_cold.call_s")
            yield Promise(f"{label}: of `torch.compile`, cold", f"{ratio:.2f}x", "less than 1x", ratio < 1)
        if f"{name}.before.call_s" in figures:
            ratio = own_s / median(figures, f"{name}.before.call_s")
            yield Promise(f"{label}: of the other checkout", f"{ratio:.2f}x", f"at most {_SHARE}x", ratio <= _SHARE)
