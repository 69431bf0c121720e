"""``docs/benchmarks.md``, written from the figures of one run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from benchmarks.subjects import SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Figures = dict[str, dict[str, Any]]


class Run(TypedDict):
    """When a subject was measured, how busy the machine was at its start, and how long it took."""

    began: str
    load: str
    took_s: float
    processor: NotRequired[str]


class Document(TypedDict):
    """What one run found, as it stands in ``docs/benchmarks.json``."""

    machine: dict[str, str]
    runs: dict[str, Run]
    subjects: dict[str, Figures]


_INTRODUCTION = """\
# Benchmarks

Written by `make bench`; `benchmarks/` has one file per subject, `benchmarks.json` beside this file every sample. Times
are medians, with the least and the most in brackets where there are several; the end of each section says of how many,
and how to make it again. Other work on the machine moves all of them; ratios within one run move little.
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


def markdown(document: Document, kept: Mapping[str, str] | None = None) -> str:
    """Return the page: the machine, the section of each subject, and what all of them took.

    Args:
        document: the figures.
        kept: sections of an earlier page that stay as they are: a later version may not read their figures.
    """
    kept = kept or {}
    machine = table(("machine", ""), document["machine"].items())
    runs = {name: document["runs"][name] for name in SUBJECTS if name in document["runs"]}
    sections = [kept.get(name) or _section(name, run, document["subjects"].get(name)) for name, run in runs.items()]
    total_s = sum(run["took_s"] for run in document["runs"].values())
    return "\n".join([_INTRODUCTION, machine, *sections, f"All of this page took {total_s / 60:.1f} minutes.\n"])


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a page by the names of their subjects, which are in their last lines."""
    return {name: text for text, name in re.findall(r"(?ms)^(## .*?^`make bench ONLY=(\w+)`[^\n]*\n)", page)}


def insert(text: str, name: str, content: str) -> str:
    """Return a document with new content between ``<!-- name -->`` and ``<!-- end of name -->``, which stay."""
    before, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->\n")
    if not end:
        raise ValueError(f"the document has no place for {name}")
    return f"{before}{begin}{content}{end}{after}"


def _section(name: str, run: Run, figures: Figures | None) -> str:
    """Return a subject's section, with the command that makes it and how many samples its figures have."""
    began = f"`make bench ONLY={name}`: {run['took_s']:.0f} s, begun at {run['began']} with a load of {run['load']}"
    began += f", on {run['processor']}" if "processor" in run else ""
    if figures is None:
        return f"## {name}\n\n**It failed in this run.** {began}.\n"
    counts = [len(figure["values"]) for figure in figures.values()]
    samples = f"{min(counts)} to {max(counts)} samples" if min(counts) < max(counts) else f"{counts[0]} samples"
    samples = "one sample" if max(counts) == 1 else samples
    text: str = import_module(f"benchmarks.{name}").section(figures)
    return f"{text}\n{began}; {samples} a figure.\n"


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


def spread(figure: Mapping[str, Any], digits: int = 1) -> str:
    """Return a median of plain numbers, with the least and the most of several."""
    middle, least, most = (f"{figure[name]:.{digits}f}" for name in ("median", "least", "most"))
    return middle if least == most else f"{middle} ({least} to {most})"


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
