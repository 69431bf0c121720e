"""``docs/benchmarks.md``, written from the figures of one run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Figures = dict[str, dict[str, Any]]


class Document(TypedDict):
    """What one run found, as it stands in ``docs/benchmarks.json``."""

    machine: dict[str, str]
    took_s: dict[str, float]
    subjects: dict[str, Figures]


_INTRODUCTION = """\
# Benchmarks

Written by `make bench`; `benchmarks/` has one file per subject, `benchmarks.json` beside this file every sample. Times
are medians, with the least and the most in brackets. Other work on the machine moves all of them; ratios within one run
move little.
"""


@dataclass(frozen=True, slots=True)
class Promise:
    """A figure that the project promises, and how it came out."""

    what: str
    found: str
    promised: str
    kept: bool

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of the table."""
        return self.what, self.found, self.promised, "yes" if self.kept else "**no**"


def markdown(document: Document) -> str:
    """Return the page: the machine, the section of each subject, and what each took."""
    machine = table(("machine", ""), document["machine"].items())
    sections = [
        import_module(f"benchmarks.{name}").section(document["subjects"][name])
        if name in document["subjects"]
        else f"## {name}\n\n**It failed in this run.**\n"
        for name in document["took_s"]
    ]
    return "\n".join([_INTRODUCTION, machine, *sections, _took(document["took_s"])])


def _took(took_s: Mapping[str, float]) -> str:
    """Return the section that says how long the measurements took."""
    rows = [(f"`make bench ONLY={name}`", f"{value:.0f} s") for name, value in took_s.items()]
    total = f"All of it took {sum(took_s.values()) / 60:.1f} minutes.\n"
    return "\n".join(["## What this page took\n", total, table(("subject", "took"), rows)])


def promised(*promises: Promise) -> str:
    """Return the table of promises."""
    return table(("promise", "found", "promised", "kept"), (promise.row for promise in promises))


def median(figures: Figures, name: str) -> float:
    """Return the median of a figure."""
    return float(figures[name]["median"])


def span(figure: Mapping[str, Any]) -> str:
    """Return a median of seconds, with the least and the most of several."""
    middle, least, most = figure["median"], figure["least"], figure["most"]
    return seconds(middle) if least == most else f"{seconds(middle)} ({seconds(least)} to {seconds(most)})"


def seconds(value_s: float) -> str:
    """Return seconds in the unit that suits them."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value_s) >= scale:
            return f"{value_s / scale:.3g} {unit}"
    return f"{value_s / 1e-6:.2g} us"


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"
