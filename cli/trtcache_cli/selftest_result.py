"""What the steps of the self-test report, and the text that is pasted into an issue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trtcache.config.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OK, FAILED, NOT_RUN = "ok", "failed", "not run"

STEPS: Mapping[str, str] = {
    "environment": "looked at what is installed and at the machine",
    "build": "compiled a model (convolution and norm, products, tied weights, softmax, 1 to 8 rows) in an empty cache",
    "hit": "compiled it again in another process that may not build",
    "run": "ran the engine from the cache for 1, 3 and 8 rows, and compared with eager",
    "refit": "put the weights of another model in, and the first ones back",
    "damage": "flipped one byte of the stored engine, and compiled again",
    "version": "offered entries of another version: under their own key, under this one, and (plans) by their record",
}
"""Name -> what the step does."""

HEADER = ("STEP", "RESULT", "SECONDS", "WHAT IT DID", "WHAT IT SAW")


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did and saw.

    Attributes:
        step: one of ``STEPS``.
        status: ``ok``, ``failed`` or ``not run``.
        saw: what it saw, or why it failed or was not run.
        seconds: how long it took.
        facts: versions and the machine, of ``environment`` alone.
    """

    step: str
    status: str
    saw: str
    seconds: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def did(self) -> str:
        """What the step does."""
        return STEPS[self.step]

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of the table, in the order of ``HEADER``."""
        return self.step, self.status, f"{self.seconds:.1f}", self.did, self.saw

    def document(self) -> dict[str, object]:
        """Return the step as ``--json`` has it."""
        return {
            "step": self.step,
            "status": self.status,
            "did": self.did,
            "saw": self.saw,
            "seconds": round(self.seconds, 3),
        }


def facts_of(results: Iterable[StepResult]) -> dict[str, str]:
    """Return what ``environment`` found."""
    return {name: value for one in results for name, value in one.facts.items()}


def summary(results: Sequence[StepResult]) -> str:
    """Return how many steps went how, in one line."""
    counts = [(sum(one.status == status for one in results), status) for status in (OK, FAILED, NOT_RUN)]
    took = format_duration(sum(one.seconds for one in results))
    return f"{', '.join(f'{count} {status}' for count, status in counts if count)}, in {took}"


def report(backend: str, results: Sequence[StepResult]) -> str:
    """Return the results as Markdown, to be pasted into an issue."""
    lines = [f"### trtcache selftest: {backend}", "", summary(results), ""]
    lines += ["| step | result | seconds | what it did | what it saw |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(map(_cell, one.row))} |" for one in results]
    lines += ["", *(f"- {name}: {value}" for name, value in facts_of(results).items())]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
