"""Write ``docs/evidence/onnx.md``: ``python -m tests.backends.tensorrt.operators_evidence``, or ``make evidence``."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.report import table
from tests.backends.tensorrt.operators import Outcome, examine, names
from tests.keys.tracing import operators_listed_once, registry_made_once

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCUMENT = Path(__file__).parents[3] / "docs" / "evidence" / "onnx.md"

UNSPECIFIED = {
    **dict.fromkeys(("topk", "sort", "argsort", "kthvalue", "msort"), "the order of equal elements is not specified"),
    **dict.fromkeys(("masked.argmax", "masked.argmin"), "a sample has NaN, whose order is not specified in ONNX"),
    **dict.fromkeys(
        ("new_empty", "new_empty_strided", "empty_strided", "empty_like", "empty", "empty_permuted"),
        "its results are whatever was in memory",
    ),
}
"""Operators whose results may differ, and why."""

_INTRODUCTION = """\
# Operators in ONNX

Written by `make evidence` with torch {torch}, onnx {onnx}, onnxscript {onnxscript} and onnxruntime {onnxruntime}.
Calls of every operator in torch's sample database (`torch.testing._internal.common_methods_invocations.op_db`) are
exported to ONNX as for TensorRT, run in ONNX Runtime on the CPU and compared with eager torch. **No TensorRT engine is
run**: this says what TensorRT is given, not what it makes of it.

{total} operators: {equal} calls of {tried} operators are the same; operators that differ: **{different}**. Calls of
{left} operators stay in torch, wholly or in part, for the reasons below.
"""

_PROCESS = ExitStack()
"""What is done for the life of the process."""


def _prepare() -> None:
    torch.set_num_threads(1)
    for context in (operators_listed_once(), registry_made_once()):
        _PROCESS.enter_context(context)


def examined(chosen: Sequence[str], processes: int) -> list[Outcome]:
    """Return the outcomes of operators, in order, from several processes."""
    with ProcessPoolExecutor(processes, get_context("spawn"), _prepare) as pool:
        outcomes = []
        for outcome in pool.map(examine, chosen):
            outcomes.append(outcome)
            sys.stderr.write(f"\r{len(outcomes)} of {len(chosen)}: {outcome.name}\033[K")
    return outcomes


def wrong(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes with results that differ and should not."""
    return [one for one in outcomes if one.different and one.name not in UNSPECIFIED]


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the document."""
    versions = {package: importlib.metadata.version(package) for package in ("onnx", "onnxscript", "onnxruntime")}
    head = _INTRODUCTION.format(
        torch=torch.__version__,
        **versions,
        total=len(outcomes),
        equal=sum(one.equal for one in outcomes),
        tried=sum(one.equal > 0 for one in outcomes),
        different=len(wrong(outcomes)),
        left=sum(bool(one.left) for one in outcomes),
    )
    differ = ((f"`{one.name}`", "; ".join(one.different)) for one in wrong(outcomes))
    free = ((f"`{one.name}`", UNSPECIFIED[one.name]) for one in outcomes if one.different and one.name in UNSPECIFIED)
    left = ((f"`{one.name}`", str(one.equal), "; ".join(sorted(one.left))) for one in outcomes if one.left)
    untold = ((f"`{one.name}`", str(one.equal), "; ".join(sorted(one.untold))) for one in outcomes if one.untold)
    return "\n".join(
        [
            head,
            "## Different\n",
            table(("operator", "calls"), differ),
            "Not counted:\n",
            table(("operator", "why"), free),
            "## In torch\n",
            table(("operator", "calls that are the same", "why the others stay in torch"), left),
            "## Not compared\n",
            "The export or ONNX Runtime refuses these; a build of a plan may fail.\n",
            table(("operator", "calls that are the same", "what others ended with"), untold),
        ]
    )


def main() -> None:
    """Examine every operator and write the document; fail if results differ that should not."""
    parser = argparse.ArgumentParser(prog="make evidence", description="Write docs/evidence/onnx.md")
    parser.add_argument("--processes", type=int, default=2, help="how many at once (default: 2)")
    outcomes = examined(names(), parser.parse_args().processes)
    DOCUMENT.write_text(markdown(outcomes))
    if different := [one.name for one in wrong(outcomes)]:
        sys.exit(f"\nother results in ONNX: {', '.join(different)}")


if __name__ == "__main__":
    main()
