"""Write ``docs/evidence/op_db.md``: ``python -m tests.keys.evidence [--processes 2]``, or ``make evidence``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.report import table
from tests.keys.operators import Outcome, examine, names
from tests.keys.tracing import operators_listed_once

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCUMENT = Path(__file__).parents[2] / "docs" / "evidence" / "op_db.md"

_INTRODUCTION = """\
# Operators: a change of one argument changes the key

Written by `make evidence` with torch {torch}. For every operator in torch's sample database
(`torch.testing._internal.common_methods_invocations.op_db`), one call of it is exported on the CPU, float32 where the
operator takes it, and its key is compared with the keys of calls that differ in one argument that is not a tensor: a
value nearby, or one that another sample has, left-out arguments included. A change that changes the results (values,
dtype, shape or structure) must change the key. A change that keeps the results may keep the key or change it.

{total} operators: {tried} exported, {told} changes that change results, of which **{confused} kept the key**;
{equal} changes kept the results, {refused} were not taken by the operator or by `torch.export`; {skipped} operators
were skipped, for the reasons below.
"""


_PROCESS = ExitStack()
"""What is done for the life of the process; a context that nothing refers to ends at once."""


def _limit_threads() -> None:
    torch.set_num_threads(1)
    _PROCESS.enter_context(operators_listed_once())


def examined(chosen: Sequence[str], processes: int) -> list[Outcome]:
    """Return the outcomes of operators, in order, from several processes."""
    with ProcessPoolExecutor(processes, get_context("spawn"), _limit_threads) as pool:
        outcomes = []
        for outcome in pool.map(examine, chosen):
            outcomes.append(outcome)
            sys.stderr.write(f"\r{len(outcomes)} of {len(chosen)}: {outcome.name}\033[K")
    return outcomes


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the document."""
    tried = [one for one in outcomes if not one.skipped]
    skipped = [one for one in outcomes if one.skipped]
    head = _INTRODUCTION.format(
        torch=torch.__version__,
        total=len(outcomes),
        tried=len(tried),
        skipped=len(skipped),
        **{name: sum(len(getattr(one, name)) for one in tried) for name in ("told", "confused", "equal", "refused")},
    )
    reasons = Counter(_short(one.skipped) for one in skipped)
    rows = [
        (f"`{one.name}`", one.dtype, *(str(len(part)) for part in (one.told, one.equal, one.refused)), _kept(one))
        for one in tried
    ]
    return "\n".join(
        [
            head,
            "## Skipped\n",
            table(("reason", "operators"), ((reason, str(count)) for reason, count in reasons.most_common())),
            table(("operator", "why"), ((f"`{one.name}`", one.skipped) for one in skipped)),
            "## Tried\n",
            table(("operator", "dtype", "told apart", "same results", "refused", "not told apart"), rows),
        ]
    )


def _short(reason: str) -> str:
    return reason.removeprefix("Applied cannot be exported: ").partition(":")[0].partition("(")[0].strip()


def _kept(outcome: Outcome) -> str:
    return "; ".join(f"`{what}`" for what in outcome.confused).replace("|", "/")


def main() -> None:
    """Examine every operator and write the document; fail if a key did not change that had to."""
    parser = argparse.ArgumentParser(prog="make evidence", description="Write docs/evidence/op_db.md")
    parser.add_argument("--processes", type=int, default=2, help="how many at once (default: 2)")
    outcomes = examined(names(), parser.parse_args().processes)
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(markdown(outcomes))
    if confused := [one.name for one in outcomes if one.confused]:
        sys.exit(f"\nnot told apart: {', '.join(confused)}")


if __name__ == "__main__":
    main()
