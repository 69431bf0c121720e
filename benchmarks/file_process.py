"""One process of the file's benchmark: ``python -m benchmarks.file_process WAY FOLDER`` prints its seconds as JSON.

The clock runs from the call that opens the file to the first output. torch and trtcache are imported before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.export.pt2_archive import _package  # noqa: F401  # what torch.export.load imports when it is first called

import trtcache
from benchmarks.timing import import_compile, timed
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable

Inputs = tuple[torch.Tensor, torch.Tensor]
Figures = dict[str, float]

TOLERANCE = 1e-5


def save_process(path: Path, inputs: Inputs) -> Figures:
    """Export the model into the file."""
    torch.export.save(torch.export.export(load_embedder(), inputs, strict=False), path)
    return {}


def alias_process(path: Path, inputs: Inputs) -> Figures:
    """Compile the file and call."""
    import_compile()
    import trtcache.bundle.file_alias
    import trtcache.frontends.pt2  # imported at the first file

    compile_ = trtcache.compile
    before = set(sys.modules)
    compiled, compile_s = timed(lambda: compile_(path))
    output, first_s = timed(lambda: compiled(*inputs))
    _check(inputs, output)
    report = compiled.report
    (partition,) = report.partitions
    if report.route == "alias" and {"sympy", "sqlalchemy"} & (set(sys.modules) - before):
        raise SystemExit("an alias imported what only lowering or a database needs")
    return {
        "is_alias_count": float(report.route == "alias"),
        "file_s": report.file_s,
        "alias_s": report.alias_s,
        "fetch_s": partition.fetch_s,
        "load_s": partition.load_s,
        "rest_s": report.rest_s,
        "first_s": first_s,
        "total_s": compile_s + first_s,
    }


def program_process(path: Path, inputs: Inputs) -> Figures:
    """Load the program by torch, compile it, which is a hit, and call."""
    from trtcache.lowering import stages  # noqa: F401  # imported before the clock runs

    import_compile()
    compile_ = trtcache.compile
    program, load_s = timed(lambda: torch.export.load(path))
    compiled, compile_s = timed(lambda: compile_(program))
    output, first_s = timed(lambda: compiled(*inputs))
    _check(inputs, output)
    return {"load_s": load_s, "total_s": load_s + compile_s + first_s}


def torch_process(path: Path, inputs: Inputs) -> Figures:
    """Load the program by torch and call it in eager mode."""
    module, load_s = timed(lambda: torch.export.load(path).module())
    output, first_s = timed(lambda: module(*inputs))
    _check(inputs, output)
    return {"load_s": load_s, "total_s": load_s + first_s}


WAYS: dict[str, Callable[[Path, Inputs], Figures]] = {
    "save": save_process,
    "alias": alias_process,
    "program": program_process,
    "torch": torch_process,
}


def _check(inputs: Inputs, output: torch.Tensor) -> None:
    """Refuse to time a wrong answer."""
    difference = float((output - load_embedder()(*inputs)).abs().max())
    if not difference < TOLERANCE:
        raise SystemExit(f"the output is off by {difference:.1e}")


def main(way: str, folder: str) -> None:
    """Run one way and print its figures."""
    with torch.no_grad():
        figures = WAYS[way](Path(folder) / "model.pt2", tokenize())
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
