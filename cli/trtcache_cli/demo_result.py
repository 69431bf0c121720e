"""Results of the demo's processes: checks and formatting."""

from __future__ import annotations

from collections.abc import Sequence

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_duration

TOLERANCE = 1e-5
NOTICEABLE = 1e-3
"""Minimum output change of a refit with other weights."""

HEADER = ("STEP", "OUTCOME", "COMPILE", "EXPORT", "BUILD", "TRTCACHE", "FIRST CALL", "SPEED-UP", "OFF BY")


@frozen_dataclass
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
        later_s, eager_s: seconds of a later call of the engine, and of the model in eager torch; 0 unless measured.
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
    later_s: float = 0.0
    eager_s: float = 0.0

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
        f"{result.step}: the output is off by {result.largest_difference:.1e}, and {TOLERANCE:.0e} is allowed"
        for result in results
        if not result.largest_difference < TOLERANCE  # NaN is a problem
    ]
    for result in results:
        if result.step == "hit" and result.outcome != "hit":
            found.append(f"the second process did not hit: {result.outcome}")
        if result.step == "refit" and not result.change > NOTICEABLE:
            found.append("refit: the output is still that of the old weights")
    return found


def rows(results: Sequence[StepResult]) -> list[tuple[str, ...]]:
    """Return the table rows, in the order of ``HEADER``."""
    first = results[0]
    return [
        (
            result.step,
            result.outcome,
            format_duration(result.compile_s),
            format_duration(result.export_s) if result.export_s else "-",
            format_duration(result.build_s) if result.build_s else "-",
            format_duration(result.own_s),
            format_duration(result.first_s),
            f"{first.total_s / result.total_s:.1f}x",
            f"{result.largest_difference:.1e}",
        )
        for result in results
    ]
