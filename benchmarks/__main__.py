"""Run the benchmarks: ``python -m benchmarks [--only model,checks] [--rounds 5]``, or ``make bench``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import machine, plot, report
from benchmarks.timing import summarised

if TYPE_CHECKING:
    from benchmarks.report import Document

DOCS = Path(__file__).parents[1] / "docs"

SUBJECTS = {
    "start": "from the start of a process to its first output: five models, ten ways (needs 8 GB; about 12 min)",
    "model": "from a model to its first output, in six ways (about 6 min)",
    "direct": "a direct hit beside torch's loader and torch.compile, and what it costs (needs 8 GB; about 3 min)",
    "file": "from a program's file to its first output (about 2 min)",
    "checks": "the input checks of a call",
    "key": "passes and key of a graph",
    "keys": "keys of graphs of 10,000 and 100,000 nodes, beside torch's",
    "threads": "throughput, memory and answers of runners (about 2 min)",
    "tune": "trtcache tune beside measurements by hand (about 3 min)",
    "store": "puts and gets beside diskcache, plain files and zstd (needs 8 GB; about 6 min)",
    "partition": "four parts built one after the other and side by side (about 8 min)",
    "ls": "trtcache ls of 10,000 entries",
    "footprint": "import time and size of an install",
    "refit": "memory of refits, and of 3 GB in and out of the store (needs 8 GB; about 3 min)",
    "export": "memory of writing and loading programs with engines of 1 and 3 GB (needs 8 GB; about 3 min)",
    "plan": "memory of a build of TensorRT-RTX (needs 8 GB)",
}
"""Module of this package, which has ``measure`` -> what it measures."""


def main() -> None:
    """Measure all subjects and write the figures, or some and print them."""
    arguments = _arguments()
    os.environ |= {"BENCHMARK_DEVICE": arguments.device, "BENCHMARK_MODELS": arguments.models}
    chosen = arguments.only.split(",") if arguments.only else list(SUBJECTS)
    if unknown := [name for name in chosen if name not in SUBJECTS]:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    document: Document = {"machine": machine.describe(), "subjects": {}}
    for name in chosen:
        sys.stderr.write(f"{name}: {SUBJECTS[name]}\n")
        with tempfile.TemporaryDirectory(prefix=f"trtcache-bench-{name}-") as folder:
            samples = import_module(f"benchmarks.{name}").measure(Path(folder), arguments.rounds)
        document["subjects"][name] = summarised(samples)
    text = report.markdown(document)
    print(text)
    if not arguments.only:
        (DOCS / "benchmarks.json").write_text(json.dumps(document, indent=1) + "\n")
        (DOCS / "benchmarks.md").write_text(text)
        plot.draw(document, DOCS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure; without --only, write docs/benchmarks.*")
    parser.add_argument("--only", default="", help=f"some of {','.join(SUBJECTS)}; they are printed, not written")
    parser.add_argument("--device", default="cpu", help="what `start` runs on: cpu or cuda (default: cpu)")
    parser.add_argument("--models", default="", help="what `start` starts, such as minilm,gpt2 (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="new processes for each way (default: 5)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
