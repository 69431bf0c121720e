"""The page ``docs/evidence/models.md``."""

from __future__ import annotations

import collections
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

DOCUMENT = Path(__file__).parents[2] / "docs" / "evidence" / "models.md"

_INTRODUCTION = """\
# Architectures of public libraries

Written by `make models` with {versions}, on {machines}. {count} architectures of {libraries} libraries, chosen before
any was compiled and none replaced since, are built small, from configurations with random weights, and compiled for
`aot_inductor` on a CPU. Each has a process of its own, and a second one, in which nothing may be built, for the hits.

- **off by** is the largest difference to eager. An answer is *wrong* if it differs by more than 0.001 of the largest
  value (or of 1), or in a shape, a dtype or an integer.
- **hit**: a second process with another hash seed finds the engine through the key alias, and its answer is right.
- **direct**: with [direct mode](../direct-mode.md) the second process does not export the model either.
- **refit**: after `refit` with all weights of another seed the answer is that of eager with those weights.
- **dynamic**: exported with `Dim.AUTO` for the batch (in graphs for nodes and edges) it answers another size rightly.
  Where that cannot be compiled, sizes are fixed.
- **seconds** are those of the first `compile` by the clock, whatever else the machine did: export, lowering, build and
  load.
{pending}"""

_HEADS = ("architecture", "compiled", "off by", "hit", "direct", "refit", "dynamic", "seconds")


def markdown(names: Sequence[str], rows: Mapping[str, Row]) -> str:
    """Return the page for the architectures that have a row."""
    done = [rows[name] for name in sorted(names, key=_place) if name in rows]
    left = len(names) - len(done)
    text = _INTRODUCTION.format(
        versions=listed({f"torch {row['torch']}" for row in done}),
        machines=listed({f"a machine with {row['cores']} cores" for row in done}),
        count=len(names),
        libraries=len({name.partition("/")[0] for name in names}),
        pending=f"\n**{left} have not been run yet**, and are not in the tables.\n" if left else "",
    )
    compiled = [row for row in done if row["outcome"] != "failed"]
    sections = [text, _totals(done, compiled), _libraries(done)]
    sections += reasons("Why some do not compile", _failures(done))
    for title, column in (
        ("Why some do not hit in a second process", "hit_off"),
        ("Why direct mode misses", "direct"),
        ("Why some are not refitted rightly", "refit"),
        ("Why sizes are not dynamic", "dynamic"),
    ):
        sections += reasons(title, ((shorten(row.get(column, "")), row) for row in compiled if not _ok(row, column)))
    return "\n".join([*sections, "## All\n", *table(_HEADS, map(_cells, done))]) + "\n"


def _totals(done: Sequence[Row], compiled: Sequence[Row]) -> str:
    def count(column: str) -> str:
        return f"{sum(_ok(row, column) for row in compiled)} of {len(compiled)}"

    wrong = sum(row["outcome"] == "wrong" for row in done)
    failed = collections.Counter(row["by"] for row in done if row["outcome"] == "failed")
    whom = ", ".join(f"{by}: {number}" for by, number in failed.most_common())
    lines = [
        ("compile", f"{len(compiled)} of {len(done)}"),
        ("do not", f"{sum(failed.values())}" + (f" ({whom})" if whom else "")),
        ("wrong answers", f"{wrong}"),
        ("hit in a second process", count("hit_off")),
        ("hit with direct mode", count("direct")),
        ("refitted rightly", count("refit")),
        ("other sizes answered rightly", count("dynamic")),
    ]
    return "\n".join(table(("", "architectures"), lines)) + "\n"


def _libraries(done: Sequence[Row]) -> str:
    counts: dict[str, list[int]] = {}
    versions: dict[str, str] = {}
    for row in done:
        library = row["name"].partition("/")[0]
        versions[library] = row.get("library_version", "")
        entry = counts.setdefault(library, [0, 0])
        entry[0] += 1
        entry[1] += row["outcome"] == "compiled"
    lines = [(library, versions[library], str(number), str(right)) for library, (number, right) in counts.items()]
    return "\n".join(table(("library", "version", "architectures", "compiled, and right"), lines)) + "\n"


def _failures(done: Iterable[Row]) -> Iterable[tuple[str, Row]]:
    return ((f"{row['by']}: {shorten(row['why'])}", row) for row in done if row["outcome"] == "failed")


def reasons(title: str, found: Iterable[tuple[str, Row]]) -> list[str]:
    """Return a section with reasons and the architectures that they apply to, or nothing."""
    by_reason: dict[str, list[str]] = {}
    for reason, row in found:
        by_reason.setdefault(reason, []).append(row["name"])
    if not by_reason:
        return []
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    return [f"## {title}\n", *(f"- {escape(reason)} ({', '.join(names)})" for reason, names in ordered), ""]


def _cells(row: Row) -> tuple[str, ...]:
    if row["outcome"] == "failed":
        return (row["name"], f"no: {row['by']}", *[""] * 5, f"{row['total_s']:.0f}")
    off_by = "" if row.get("off_by") is None else f"{row['off_by']:.1e}"
    flags = ["yes" if _ok(row, column) else "no" for column in ("hit_off", "direct", "refit", "dynamic")]
    outcome = "yes" if row["outcome"] == "compiled" else "**wrong**"
    outcome += f", {row['left']} operators in torch" if row.get("left") else ""
    return (row["name"], outcome, off_by, *flags, f"{row['seconds']:.0f}")


def _ok(row: Row, column: str) -> bool:
    return row.get(column) == ("hit" if column == "direct" else "yes")


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *(f"| {' | '.join(line)} |" for line in lines)]


def shorten(reason: str) -> str:
    """Return a reason without the directories of this machine and torch's account of where it happened."""
    reason = reason.removeprefix("no: ").partition(" Caused by:")[0].partition(" (at ")[0]
    return re.sub(r"\S*/(?:site-packages/)?(?=[\w.-]+)", "", reason) if "/" in reason else reason


def escape(text: str) -> str:
    """Return text in which Markdown sees no tags, emphasis or links."""
    for character in ("\\", "<", "*", "_", "["):
        text = text.replace(character, f"\\{character}")
    return text


def listed(items: Iterable[str]) -> str:
    """Return items in a sentence."""
    return " and ".join(sorted(items)) or "nothing"


def _place(name: str) -> tuple[bool, str]:
    return not name.startswith("transformers/"), name
