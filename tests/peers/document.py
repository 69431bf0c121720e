"""The document of a run: what became of each suite's programs and calls, and why calls were refused."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from benchmarks.report import table
from tests.peers.suites import SUITES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

DOCUMENT = Path(__file__).parents[2] / "docs" / "evidence" / "peers.md"

Results: TypeAlias = "Mapping[str, Sequence[dict[str, Any]]]"

_INTRODUCTION = """\
# Other projects' tests: each call is right or refused

Written by `make peers PEERS=FOLDER` with torch {torch} and the backend `{backend}`{notes}. The programs are those that
torch's and Torch-TensorRT's own tests export{commits}; `module_db` and `exportdb` come with torch. None of their code
is in this repository. Each program is compiled with `trtcache.compile` and called with its example inputs, with the
inputs that the test calls it with, and with up to {sizes} others: sizes of 0, 1 and 2, one more and one less,
multiples, equal and unequal ones, and sizes that do not fit each other; and other numbers in small integer tensors.
The same inputs go to the model in eager torch and to `ep.module()`. Of programs that draw random numbers only shapes
and dtypes are compared. The backend `interpreter` of our tests runs the lowered program with torch, behind the same
keys, guards and input checks as AOTInductor, whose builds would take a day here.

**{wrong} wrong answers** in {calls} calls of {programs} programs; {refused} calls were refused that `ep.module()`
answers as eager torch does.
"""

_COLUMNS = {
    "agree": ("agree", "agree, eager differs", "agree with eager only"),
    "both raise": ("both raise", "refused, ep.module() is wrong"),
    "refused": ("refused",),
    "**wrong**": ("WRONG",),
}


def markdown(
    results: Results,
    missing: Sequence[str],
    unfinished: Sequence[str],
    commits: Mapping[str, str],
    arguments: argparse.Namespace,
) -> str:
    """Return the document."""
    verdicts = Counter(call["verdict"] for _, _, call in calls(results))
    notes = "".join(
        [
            f"; not run: {', '.join(missing)}" if missing else "",
            f"; not finished: {', '.join(unfinished)}" if unfinished else "",
        ]
    )
    head = _INTRODUCTION.format(
        torch=torch.__version__,
        backend=arguments.backend,
        notes=notes,
        commits="".join(f"; {name} at {_commit(said)}" for name, said in commits.items()),
        sizes=arguments.sizes,
        wrong=verdicts["WRONG"],
        calls=sum(verdicts.values()),
        programs=sum(program["program"] == "compiled" for _, program in programs(results)),
        refused=verdicts["refused"],
    )
    uncompiled = Counter(
        _group(program["reason"]) for _, program in programs(results) if program["program"] == "not compiled"
    )
    refused = Counter(_group(call["reason"]) for _, _, call in calls(results) if call["verdict"] == "refused")
    others = Counter(
        (SUITES[suite].title, record["outcome"], _group(record["reason"]))
        for suite, found in results.items()
        for record in found
        if record["outcome"] != "examined"
    )
    parts = [head, figures(results), "## Calls refused that `ep.module()` answers\n", _counted("reason", refused)]
    if verdicts["WRONG"]:
        parts += ["## Wrong answers\n", "\n".join(f"- {line}" for line in wrong_calls(results)) + "\n"]
    parts += ["## Programs that are not compiled\n", _counted("reason", uncompiled)]
    rows = [(*key, str(count)) for key, count in others.most_common()]
    parts += ["## Tests without a result\n", table(("suite", "what", "why", "tests"), rows)]
    return "\n".join(parts)


def figures(results: Results) -> str:
    """Return the table of suites."""
    rows = []
    for suite, found in results.items():
        made = Counter(program["program"] for _, program in programs({suite: found}))
        verdicts = Counter(call["verdict"] for _, _, call in calls({suite: found}))
        counted = [str(sum(verdicts[verdict] for verdict in group)) for group in _COLUMNS.values()]
        total = str(sum(verdicts.values()))
        rows.append(
            (SUITES[suite].title, str(len(found)), str(made["compiled"]), str(made["not compiled"]), total, *counted)
        )
    header = ("suite", "tests", "programs", "not compiled", "calls", *_COLUMNS)
    total = tuple(str(sum(int(row[column]) for row in rows)) for column in range(1, len(header)))
    return table(header, [*rows, ("all", *total)])


def wrong_calls(results: Results) -> list[str]:
    """Return a line for each wrong answer, and for each test that died in a compiled program."""
    lines = [
        f"{test}, `{program['model']}`, call {call['call']}: {call['reason']}".replace("|", "/")
        for test, program, call in calls(results)
        if call["verdict"] == "WRONG"
    ]
    died = (record for found in results.values() for record in found if record["outcome"] == "died")
    return lines + [
        f"{record['id']} ended the process: {record['reason']}" for record in died if "compiled:" in record["reason"]
    ]


def programs(results: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each program with its test."""
    for found in results.values():
        for record in found:
            for program in record.get("programs", ()):
                yield record["id"], program


def calls(results: Results) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield each call with its test and program."""
    for test, program in programs(results):
        for call in program["calls"]:
            yield test, program, call


def _group(reason: str) -> str:
    """Return a reason without what differs between programs: names, numbers, shapes."""
    reason = re.sub(r"argument [\w.\[\]'\"]+", "argument …", reason)
    reason = re.sub(r"\(-?\w*[\d, …s+*-]*\)", "(…)", reason)
    reason = re.sub(r"(?<![A-Za-z_])-?\d+(\.\d+)?", "N", reason)
    return reason.replace("|", "/")[:160]


def _commit(said: str) -> str:
    return f"`{said[:12]}`" if re.fullmatch("[0-9a-f]{40}", said) else f"{said!r}"


def _counted(header: str, counted: Counter[str]) -> str:
    return table((header, "count"), [(reason, str(count)) for reason, count in counted.most_common()])
