"""One process of ``benchmarks.start``: ``python -m benchmarks.start_process WAY MODEL FOLDER`` prints seconds as JSON.

``call_s`` runs from the call that compiles or loads to the first output; torch, trtcache, the model and its inputs are
there before. ``process_s`` runs from the start of the process, which the caller puts into ``BENCHMARK_BEGAN_S``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks import raw_package, start_preparation
from benchmarks.start_folder import Figures, Folder, Inputs, device, process_s
from benchmarks.start_models import SUBJECTS
from benchmarks.timing import import_compile, per_call_s, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trtcache.runtime.report import Report


@dataclass(frozen=True, slots=True)
class Started:
    """What a way gives: the call of the model, and for trtcache its report and the seconds of its imports."""

    call: Callable[[], torch.Tensor]
    report: Report | None = None
    import_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Start:
    """What the ways of one process start from."""

    name: str
    folder: Folder
    inputs: Inputs
    device: str

    def model(self) -> torch.nn.Module:
        """Return the model with its weights."""
        model = SUBJECTS[self.name].load(self.folder.weights).to(self.device)
        _read(model.parameters())
        return model


def eager(start: Start) -> Callable[[], Started]:
    """Call the model as it is."""
    model = start.model()
    return lambda: Started(lambda: model(*start.inputs))


def torch_compile(start: Start) -> Callable[[], Started]:
    """Let ``torch.compile`` do it, with whatever is in its cache directory."""
    model = start.model()

    def ready() -> Started:
        compiled = torch.compile(model)
        return Started(lambda: compiled(*start.inputs))

    return ready


def mega_cache(start: Start) -> Callable[[], Started]:
    """Let ``torch.compile`` do it, with an empty cache directory and the artifacts that another process saved."""
    compiled = torch_compile(start)

    def ready() -> Started:
        torch.compiler.load_cache_artifacts(start.folder.artifacts.read_bytes())
        return compiled()

    return ready


def raw(start: Start) -> Callable[[], Started]:
    """Load the package that the cache has by torch's own loader, and give it the weights; it needs no model."""
    weights = {name: one.to(start.device) for name, one in raw_package.weights_in(start.folder.path).items()}
    _read(weights.values())

    def ready() -> Started:
        package = raw_package.load(start.folder.path, weights)
        return Started(lambda: package.run(list(start.inputs))[0])

    return ready


def compiled(start: Start) -> Callable[[], Started]:
    """Compile by trtcache; what is behind it is imported before, as torch is, and timed by itself."""
    began_s = time.perf_counter()
    import trtcache
    from trtcache.config import paused_collector

    import_compile()
    with paused_collector():
        if os.environ.get("TRTCACHE_DIRECT") == "off":
            import trtcache.lowering.stages  # what exports and lowers
        else:
            import trtcache.frontends.direct.mode  # what compares
    compile_ = trtcache.compile
    import_s = time.perf_counter() - began_s
    model = start.model()

    def ready() -> Started:
        module = compile_(model, start.inputs)
        return Started(lambda: module(*start.inputs), module.report, import_s)

    return ready


def file(start: Start) -> Callable[[], Started]:
    """Compile the program's file by trtcache; it needs no model."""
    began_s = time.perf_counter()
    import trtcache

    import_compile()
    compile_ = trtcache.compile
    import_s = time.perf_counter() - began_s

    def ready() -> Started:
        module = compile_(start.folder.program)
        return Started(lambda: module(*start.inputs), module.report, import_s)

    return ready


WAYS: dict[str, Callable[[Start], Callable[[], Started]]] = {
    "eager": eager,
    "torch_compile": torch_compile,
    "mega_cache": mega_cache,
    "raw": raw,
    "compiled": compiled,
    "file": file,
}
"""Name of a process -> what does all that comes before the clock runs, and returns what is timed."""


def run(way: str, start: Start) -> Figures:
    """Run one way, and return its seconds."""
    ready = WAYS[way](start)
    started, ready_s = timed(ready)
    output, first_s = timed(lambda: started.call().cpu())
    figures = {"call_s": ready_s + first_s, "process_s": process_s()}
    if started.import_s:
        figures |= {"import_s": started.import_s, "imported_call_s": started.import_s + figures["call_s"]}
    start.folder.check(output)
    later_s = min(per_call_s(lambda: started.call().cpu(), calls=1, batches=3))
    return figures | {"later_s": later_s} | _parts(started.report, ready_s, first_s)


def _read(tensors: Iterable[torch.Tensor]) -> None:
    """Read weights once: those of a mapped file are then in the process, and who comes first does not pay for it."""
    for tensor in tensors:
        tensor.sum()


def _parts(report: Report | None, ready_s: float, first_s: float) -> Figures:
    """Return where a hit spent it."""
    if report is None or len(report.partitions) != 1:
        return {}
    (partition,) = report.partitions
    parts = {
        "direct_s": report.direct_s,
        "export_s": report.export_s,
        "decompose_s": report.decompose_s,
        "lower_s": report.lower_s,
        "key_s": report.key_s,
        "fetch_s": partition.fetch_s,
        "load_s": partition.load_s,
    }
    return parts | {
        "is_direct_count": float(report.direct == "hit"),
        "rest_s": ready_s - sum(parts.values()),
        "first_s": first_s,
        "own_s": ready_s + first_s - report.export_s - report.decompose_s,
    }


def main(way: str, name: str, folder: Folder) -> Figures:
    """Run or prepare one way, and return its figures."""
    if way == "weights":
        return start_preparation.weights(name, folder)
    start = Start(name, folder, folder.inputs(device()), device())
    if way in start_preparation.PREPARATIONS:
        return start_preparation.PREPARATIONS[way](start.model(), start.inputs, folder)
    return run(way, start)


if __name__ == "__main__":
    torch.backends.cudnn.allow_tf32 = False  # by which each way's convolutions are off by 2e-4 in their own manner
    with torch.no_grad():
        print(json.dumps(main(sys.argv[1], sys.argv[2], Folder(Path(sys.argv[3])))))
