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

from benchmarks import machine, plot, report
from benchmarks.start_page import MODELS
from benchmarks.subjects import SUBJECTS, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.report import Document

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Measure all subjects and write the figures, or some and print them; what is there is written whatever failed."""
    arguments = _arguments()
    os.environ |= {"BENCHMARK_DEVICE": arguments.device, "BENCHMARK_MODELS": arguments.models}
    chosen = _chosen("--only", arguments.only, SUBJECTS)
    _chosen("--models", arguments.models, MODELS)
    document = measured(chosen, arguments)
    text = report.markdown(document)
    print(text)
    if not arguments.only:
        (DOCS / "benchmarks.json").write_text(json.dumps(document, indent=1) + "\n")
        (DOCS / "benchmarks.md").write_text(text)
        plot.draw(document, DOCS)
    if failed := [name for name in chosen if name not in document["subjects"]]:
        sys.exit(f"failed: {', '.join(failed)}")


def measured(chosen: list[str], arguments: argparse.Namespace) -> Document:
    """Return what the chosen subjects found, and the seconds of each."""
    document: Document = {"machine": machine.describe(), "took_s": {}, "subjects": {}}
    for name in chosen:
        subject = SUBJECTS[name]
        if arguments.rounds:
            subject = dataclasses.replace(subject, rounds=arguments.rounds)
        if arguments.minutes:
            subject = dataclasses.replace(subject, budget_s=60 * arguments.minutes)
        sys.stderr.write(f"{name}: {subject.about}\n")
        began_s = time.monotonic()
        if found := run(name, subject):
            document["subjects"][name] = found
        document["took_s"][name] = round(time.monotonic() - began_s, 1)
        sys.stderr.write(f"{name}: {document['took_s'][name]:.0f} s\n")
    return document


def _chosen(option: str, given: str, known: Mapping[str, object]) -> list[str]:
    names = given.split(",") if given else list(known)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"{option}: unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure; without --only, write docs/benchmarks.*")
    parser.add_argument("--only", default="", help=f"some of {','.join(SUBJECTS)}; they are printed, not written")
    parser.add_argument("--device", default="cpu", help="what `start` runs on: cpu or cuda (default: cpu)")
    parser.add_argument("--models", default="", help=f"what `start` starts: some of {','.join(MODELS)} (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds at the most (default: each subject's own)")
    parser.add_argument(
        "--minutes", type=float, help="begin no round that would end later (default: each subject's own)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
