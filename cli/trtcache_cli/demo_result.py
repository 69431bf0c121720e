"""Results of the demo's processes: checks and formatting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtcache.config.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

TOLERANCE = 1e-5
NOTICEABLE = 1e-3
"""Minimum output change of a refit with other weights."""

HEADER = ("STEP", "OUTCOME", "COMPILE", "EXPORT", "BUILD", "TRTCACHE", "FIRST CALL", "SPEED-UP", "OFF BY")


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one process.

    Attributes:
        step: ``build``, ``hit`` or ``refit``.
        outcome: ``built``, ``hit`` or ``refitted``.
        compile_s: seconds of ``compile``, or of ``refit``.
        export_s: part of them spent in ``torch.export`` and its decompositions.
        build_s: part of them spent in the build.
        first_s: seconds of the first call after it.
        largest_difference: maximum difference from the eager output of the model with these weights.
        change: maximum change of the output by refit; 0 for the other steps.
        pairs: the most similar pairs of sentences, with their cosine similarity.
    """

    step: str
    outcome: str
    compile_s: float
    export_s: float
    build_s: float
    first_s: float
    largest_difference: float
    change: float
    pairs: list[tuple[str, str, float]]

    @property
    def total_s(self) -> float:
        """Seconds to the first output."""
        return self.compile_s + self.first_s

    @property
    def own_s(self) -> float:
        """Seconds of ``compile`` spent neither in torch's export nor in the build."""
        return self.compile_s - self.export_s - self.build_s


def problems(results: Sequence[StepResult]) -> list[str]:
    """Return a sentence for each failed check."""
    found = [
        f"{one.step}: the output is off by {one.largest_difference:.1e}, and {TOLERANCE:.0e} is allowed"
        for one in results
        if not one.largest_difference < TOLERANCE  # NaN is a problem
    ]
    for one in results:
        if one.step == "hit" and one.outcome != "hit":
            found.append(f"the second process did not hit: {one.outcome}")
        if one.step == "refit" and not one.change > NOTICEABLE:
            found.append("refit: the output is still that of the old weights")
    return found


def rows(results: Sequence[StepResult]) -> list[tuple[str, ...]]:
    """Return the table rows, in the order of ``HEADER``."""
    first = results[0]
    return [
        (
            one.step,
            one.outcome,
            format_duration(one.compile_s),
            format_duration(one.export_s) if one.export_s else "-",
            format_duration(one.build_s) if one.build_s else "-",
            format_duration(one.own_s),
            format_duration(one.first_s),
            f"{first.total_s / one.total_s:.1f}x",
            f"{one.largest_difference:.1e}",
        )
        for one in results
    ]
