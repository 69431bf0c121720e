"""Run the benchmarks: ``python -m benchmarks [--only start,checks] [--rounds 5]``, or ``make bench``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import calls, machine, report
from benchmarks.start_page import MODELS
from benchmarks.subjects import SUBJECTS, TAKES_THE_REST, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.report import Document

DOCS = Path(__file__).parents[1] / "docs"

_WHOLE_S = 26 * 60.0  # then no round begins: what has begun, and plots, come after it, and 30 minutes are promised
_CUDA_MINUTES = 9.0  # a machine with a GPU is often somebody else's, by the minute


def main() -> None:
    """Measure all subjects and write the figures, or some and print them; what is there is written whatever failed."""
    arguments = _arguments()
    os.environ |= {"BENCHMARK_DEVICE": arguments.device, "BENCHMARK_MODELS": arguments.models}
    chosen = _chosen("--only", arguments.only, SUBJECTS)
    _chosen("--models", arguments.models, MODELS)
    document: Document = {"machine": machine.describe(), "runs": {}, "subjects": {}}
    kept: dict[str, str] = {}
    if arguments.renew:
        document = json.loads((DOCS / "benchmarks.json").read_text())
        kept = report.sections_of((DOCS / "benchmarks.md").read_text())
        kept = {name: text for name, text in kept.items() if name not in chosen}
    ends_s = time.monotonic() + _WHOLE_S
    for name in sorted(chosen, key=lambda name: name in TAKES_THE_REST):
        measure(name, document, arguments, ends_s)
    is_written = arguments.renew or not arguments.only
    if is_written:
        (DOCS / "benchmarks.json").write_text(json.dumps(document, indent=1) + "\n")
    text = report.markdown(document, kept)
    print(text)
    if is_written:
        from benchmarks import plot  # what it needs is not there on a machine that only prints

        (DOCS / "benchmarks.md").write_text(text)
        if later := document["subjects"].get("calls"):
            readme = DOCS.parent / "README.md"
            readme.write_text(report.insert(readme.read_text(), "later calls", calls.short_table(later)))
        plot.draw(document, DOCS)
    failed = [name for name in chosen if name not in document["subjects"]]
    failed += [figure for name in chosen for figure in document["subjects"].get(name, ()) if "failed_count" in figure]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def measure(name: str, document: Document, arguments: argparse.Namespace, ends_s: float) -> None:
    """Put what a subject finds, and what it took, into the document; a subject that fails leaves no figures there."""
    subject = SUBJECTS[name]
    subject = dataclasses.replace(subject, budget_s=min(subject.budget_s, ends_s - time.monotonic()))
    if arguments.rounds:
        subject = dataclasses.replace(subject, rounds=arguments.rounds)
    if arguments.minutes:
        subject = dataclasses.replace(subject, budget_s=60 * arguments.minutes)
    sys.stderr.write(f"{name}: {subject.about}\n")
    began, load, began_s = time.strftime("%Y-%m-%d %H:%M", time.gmtime()), machine.load(), time.monotonic()
    found = run(name, subject)
    took_s = round(time.monotonic() - began_s, 1)
    processor = machine.describe()["processor"]
    document["runs"][name] = {"began": began, "load": load, "took_s": took_s, "processor": processor}
    document["subjects"].pop(name, None)
    if found:
        document["subjects"][name] = found
    sys.stderr.write(f"{name}: {took_s:.0f} s\n")


def _chosen(option: str, given: str, known: Mapping[str, object]) -> list[str]:
    names = given.split(",") if given else list(known)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"{option}: unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure; without --only, write docs/benchmarks.*")
    parser.add_argument("--only", default="", help=f"some of {','.join(SUBJECTS)}; they are printed, not written")
    parser.add_argument("--renew", action="store_true", help="write them into the page that is there")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="what `start` runs on (default: cpu)")
    parser.add_argument("--models", default="", help=f"what `start` starts: some of {','.join(MODELS)} (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds at the most (default: each subject's own)")
    parser.add_argument(
        "--minutes", type=float, help="begin no round that would end later (default: each subject's own)"
    )
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        arguments.minutes = arguments.minutes or _CUDA_MINUTES
    return arguments


if __name__ == "__main__":
    main()
