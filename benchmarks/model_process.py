"""One process of the model's benchmark: ``python -m benchmarks.model_process WAY [FOLDER]`` prints its seconds as JSON.

The clock runs from the call that compiles or loads to the first output. The model, its weights and its inputs are
there before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import trtcache
import trtcache.lowering.stages  # what exports and lowers is imported before the clock runs, as torch is
from benchmarks import raw_package
from benchmarks.timing import per_call_s, timed
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache_cli.demo_embedder import SentenceEmbedder

Inputs = tuple[torch.Tensor, torch.Tensor]
Figures = dict[str, float]

TOLERANCE = 1e-5


def trtcache_process(model: SentenceEmbedder, inputs: Inputs, _folder: Path) -> Figures:
    """Compile, from the cache or not, and call."""
    compile_ = trtcache.compile  # imports what is behind it: like importing torch, not a part of the call
    compiled, compile_s = timed(lambda: compile_(model, inputs))
    output, first_s = timed(lambda: compiled(*inputs))
    report = compiled.report
    (partition,) = report.partitions
    capture_s = report.export_s + report.decompose_s
    _check(model, inputs, output)
    return {
        "export_s": report.export_s,
        "decompose_s": report.decompose_s,
        "lower_s": report.lower_s,
        "key_s": report.key_s,
        "fetch_s": partition.fetch_s,
        "load_s": partition.load_s,
        "rest_s": compile_s
        - capture_s
        - report.overhead_s
        - (partition.build_s if partition.outcome == "built" else 0),
        "first_s": first_s,
        "own_s": compile_s + first_s - capture_s,
        "total_s": compile_s + first_s,
        "call_s": _call_s(lambda: compiled(*inputs)),
    }


def torch_compile_process(model: SentenceEmbedder, inputs: Inputs, _folder: Path) -> Figures:
    """Let ``torch.compile`` do it, with whatever is in its cache directory."""

    def run() -> tuple[Callable[..., torch.Tensor], torch.Tensor]:
        compiled: Callable[..., torch.Tensor] = torch.compile(model)
        return compiled, compiled(*inputs)

    (compiled, output), total_s = timed(run)
    _check(model, inputs, output)
    return {"total_s": total_s, "call_s": _call_s(lambda: compiled(*inputs))}


def extract_process(model: SentenceEmbedder, inputs: Inputs, folder: Path) -> Figures:
    """Write what the raw process needs: the package out of the cache, and all that is put into it."""
    raw_package.extract(trtcache.compile(model, inputs), folder)
    return {}


def raw_process(model: SentenceEmbedder, inputs: Inputs, folder: Path) -> Figures:
    """Load the very same package by torch's own loader, give it the weights, and call it."""
    weights = raw_package.weights_in(folder)
    package, load_s = timed(lambda: raw_package.load(folder, weights))
    (output,), first_s = timed(lambda: package.run(list(inputs)))
    _check(model, inputs, output)
    call_s = _call_s(lambda: package.run(list(inputs)))
    return {"load_s": load_s, "first_s": first_s, "total_s": load_s + first_s, "call_s": call_s}


def eager_process(model: SentenceEmbedder, inputs: Inputs, _folder: Path) -> Figures:
    """Call the model as it is."""
    _, total_s = timed(lambda: model(*inputs))
    return {"total_s": total_s, "call_s": _call_s(lambda: model(*inputs))}


WAYS: dict[str, Callable[[SentenceEmbedder, Inputs, Path], Figures]] = {
    "trtcache": trtcache_process,
    "torch_compile": torch_compile_process,
    "extract": extract_process,
    "raw": raw_process,
    "eager": eager_process,
}


def _call_s(action: Callable[[], object]) -> float:
    return min(per_call_s(action, calls=5, batches=5))


def _check(model: SentenceEmbedder, inputs: Inputs, output: torch.Tensor) -> None:
    """Refuse to time a wrong answer."""
    difference = float((output - model(*inputs)).abs().max())
    if not difference < TOLERANCE:
        raise SystemExit(f"the output is off by {difference:.1e}")


def main(way: str, folder: str = "") -> None:
    """Run one way and print its figures."""
    model, inputs = load_embedder(), tokenize()
    with torch.no_grad():
        figures = WAYS[way](model, inputs, Path(folder))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
