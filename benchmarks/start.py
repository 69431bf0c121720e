"""From the start of a process to its first output, for five models, in a dozen ways, each figure of a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.start_page import MODELS, WAYS, section
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from benchmarks.effort import Effort

__all__ = ["measure", "section"]

PROCESS = "benchmarks.start_process"
WITHOUT_TORCH = {name: f"benchmarks.start_{name}" for name in ("onnxruntime", "plain", "infer")}
"""Name of a process without torch -> its module."""

ROUNDS = 3
FOCUS = {"minilm": ("torch_compile_warm", "raw", "direct")}
"""Model -> ways that take as many turns as were asked for, so that their medians are of at least so many."""
CORES_FOR_A_MODEL = 4
"""As many as there are of these, so many models are prepared together, on 2 cores one after the other."""

Figures = dict[str, float]


def measure(folder: Path, effort: Effort) -> Samples:
    """Return figures as ``model.way.what``; a way that fails has ``failed_count`` and no other.

    Every model has a round; then they take turns while there is time.
    """
    asked = os.environ.get("BENCHMARK_MODELS", "")
    models = [_Model(name, folder / name) for name in (asked.split(",") if asked else MODELS)]
    together = min(len(models), max(1, len(os.sched_getaffinity(0)) // CORES_FOR_A_MODEL))
    figures: list[Figures] = [{"together_count": float(together), "is_cuda_count": float(not _has_onnxruntime())}]
    for first in range(0, len(models), together):
        figures += _first_round(models[first : first + together], effort)
    for turn in range(1, min(ROUNDS, effort.rounds)):
        for model in models:
            if effort.has(model.round_s[0]):
                figures += model.round(turn, WAYS)
    return gathered(figures)


def _first_round(models: list[_Model], effort: Effort) -> Iterator[Figures]:
    """Prepare some models together and yield a round of each, and the further rounds of ways that have them."""
    with ThreadPoolExecutor(len(models)) as pool:
        for prepared in pool.map(lambda model: list(model.prepared()), models):
            yield from prepared
    for model in models:
        yield from model.round(0, WAYS)
        for turn in range(1, effort.rounds if model.name in FOCUS else 0):
            if effort.has(0):
                yield from model.round(turn, FOCUS[model.name])


@dataclass(frozen=True, slots=True)
class _Model:
    """A model with the folder of its files and caches, and the seconds of its rounds."""

    name: str
    folder: Path
    round_s: list[float] = field(default_factory=list)

    def prepared(self) -> Iterator[Figures]:
        """Prepare all ways, and yield what the cold ones took: one after the other; what is not measured, together."""
        self.folder.mkdir()
        yield self._named("", self._taken("weights", self._caches("shared")))
        for way in ("cold", "torch_compile_cold"):
            yield self._named(way, self._taken(way, self._caches("shared")))
        unmeasured = ["program", "onnx"] if _has_onnxruntime() else ["program"]
        with ThreadPoolExecutor(len(unmeasured)) as pool:
            done = pool.map(lambda way: self._named(way, self._taken(way, self._caches("shared"))), unmeasured)
            yield from done
        if _has_onnxruntime():  # on a CPU it compiles again: as slow as cold
            yield self._named("mega_cache", self._taken("mega_cache", self._caches("mega")))

    def round(self, turn: int, chosen: Container[str]) -> Iterator[Figures]:
        """Yield what each of the chosen ways took in a new process."""
        began_s = time.monotonic()
        for way, process, caches in self._ways(turn):
            if way in chosen:
                yield self._named(way, self._taken(process, caches))
        self.round_s.append(time.monotonic() - began_s)

    def _ways(self, turn: int) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Yield a way, how its process is called, and what caches that finds."""
        shared = self._caches("shared")
        hit = shared | {"TRTCACHE_FORBID_BUILD": "1"}
        yield "eager", "eager", shared
        if _has_onnxruntime():
            yield "onnxruntime", "onnxruntime", shared
        else:
            yield "mega_cache", "mega_cache", self._caches(f"mega-{turn}")
        yield "slow", "compiled", hit | {"TRTCACHE_DIRECT": "off"}
        yield "file", "file", hit
        if _has_onnxruntime():  # on a GPU a program needs torch
            yield "plain", "plain", hit | {"TRTCACHE_NO_TORCH": "1"}
            yield "infer", "infer", hit | {"TRTCACHE_NO_TORCH": "1"}
        yield "torch_compile_warm", "torch_compile", shared
        yield "raw", "raw", shared
        yield "direct", "compiled", hit

    def _caches(self, name: str) -> dict[str, str]:
        place = self.folder / name
        caches = {"TRTCACHE_DIR": str(place / "trtcache"), "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor")}
        return caches | {"TRTCACHE_DIRECT": "on"}

    def _named(self, way: str, found: Figures) -> Figures:
        prefix = f"{self.name}.{way}." if way else f"{self.name}."
        return {f"{prefix}{what}": value for what, value in found.items()}

    def _taken(self, process: str, caches: dict[str, str]) -> Figures:
        began_s = time.time()
        environment = caches | {"BENCHMARK_BEGAN_S": repr(began_s)}
        arguments = [str(self.folder)] if process in WITHOUT_TORCH else [process, self.name, str(self.folder)]
        module = WITHOUT_TORCH.get(process, PROCESS)
        try:
            found = child(module, *arguments, environment=environment)
        except subprocess.CalledProcessError:  # its standard error has been shown; the others are worth having
            found = {"failed_count": 1.0}
        sys.stderr.write(f"  {self.name}: {process}: {time.time() - began_s:.1f} s {json.dumps(found)}\n")
        return found


def _has_onnxruntime() -> bool:
    """Say whether it is measured: on the CPU, for which it is installed."""
    return os.environ.get("BENCHMARK_DEVICE", "cpu") == "cpu"
