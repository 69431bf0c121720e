"""Results of the self-test's steps, and the report for an issue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_duration

OK, FAILED, NOT_RUN = "ok", "failed", "not run"

STEPS: Mapping[str, str] = {
    "environment": "checked the installation and the machine",
    "build": "compiled a model (convolution, norm, linear layers, tied weights, softmax, 1 to 8 rows) in a new cache",
    "hit": "compiled it again in another process with builds forbidden",
    "run": "ran the engine from the cache for 1, 3 and 8 rows, and compared with eager",
    "refit": "refitted the weights of another model, and then the first ones again",
    "damage": "flipped one byte of the stored engine, and compiled again",
    "version": "stored the engine as if another version had built it, and looked it up under each key",
}
"""Name -> description of the step."""

HEADER = ("STEP", "RESULT", "SECONDS", "WHAT IT DID", "WHAT IT SAW")


@frozen_dataclass
class StepResult:
    """Result of one step.

    Attributes:
        step: one of ``STEPS``.
        status: ``ok``, ``failed`` or ``not run``.
        saw: what it observed, or why it failed or was not run.
        seconds: how long it took.
        facts: versions and the machine, for ``environment`` only.
    """

    step: str
    status: str
    saw: str
    seconds: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def did(self) -> str:
        """Description of the step."""
        return STEPS[self.step]

    @property
    def row(self) -> tuple[str, ...]:
        """Cells of the table, in the order of ``HEADER``; tabs and line ends of a library's message are spaces."""
        return self.step, self.status, f"{self.seconds:.1f}", self.did, " ".join(self.saw.split())

    def document(self) -> dict[str, object]:
        """Return the step for ``--json``."""
        return {
            "step": self.step,
            "status": self.status,
            "did": self.did,
            "saw": self.saw,
            "seconds": round(self.seconds, 3),
        }


def facts_of(results: Iterable[StepResult]) -> dict[str, str]:
    """Return the facts of ``environment``."""
    return {name: value for result in results for name, value in result.facts.items()}


def summary(results: Sequence[StepResult]) -> str:
    """Return the number of steps for each status, in one line."""
    counts = [(sum(result.status == status for result in results), status) for status in (OK, FAILED, NOT_RUN)]
    took = format_duration(sum(result.seconds for result in results))
    return f"{', '.join(f'{count} {status}' for count, status in counts if count)}, in {took}"


def report(backend: str, results: Sequence[StepResult]) -> str:
    """Format the results as Markdown for an issue."""
    lines = [f"### trtcache selftest: {backend}", "", summary(results), ""]
    lines += ["| step | result | seconds | what it did | what it saw |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(map(_cell, result.row))} |" for result in results]
    lines += ["", *(f"- {name}: {value}" for name, value in facts_of(results).items())]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def without_paths(text: str, folder: Path) -> str:
    """Return a text that can be published: without the path of a temporary folder, and of the user's home directory."""
    text, home = text.replace(str(folder), "..."), str(Path("~").expanduser())
    return text.replace(home, "~") if home != "/" else text  # the home directory of some containers
