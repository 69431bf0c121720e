"""Direct mode: what recording, keys and checks take. What a hit takes is in ``benchmarks.start``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

PROCESS = "benchmarks.direct_process"
BERTS = {"few": ("6", "64"), "many": ("24", "64"), "large": ("24", "896")}
"""Layers and width: few modules, four times as many, and the same many with 1 GB of weights."""

_TEXT = """\
## Direct mode

What recording adds to an export of MiniLM, once, and what the direct key and the check of a manifest take at each hit,
for BERTs of few and many modules and of small and large weights. Recording: medians of 5 exports with and without,
which took turns. Keys and checks: medians of 15, in one process. What a direct hit takes from the call is above.
"""


def measure(_folder: Path, _effort: Effort) -> Samples:
    """Return the seconds of recording, and of keys and checks."""
    figures = [_prefixed("record", child(PROCESS, "record")), _prefixed("minilm", child(PROCESS, "look"))]
    figures += [_prefixed(name, child(PROCESS, "bert", *shape)) for name, shape in BERTS.items()]
    return gathered(figures)


def _prefixed(name: str, taken: dict[str, list[float]]) -> dict[str, list[float]]:
    return {f"{name}.{figure}": value for figure, value in taken.items()}


def section(figures: Figures) -> str:
    """Return the section of the page."""
    parts = {"export_s": "an export", "recorded_s": "the same, recorded", "write_s": "the manifest, written after it"}
    recording = [(words, span(figures[f"record.{part}"])) for part, words in parts.items()]
    looks = [_look(figures, name, words) for name, words in _looked()]
    return "\n".join(
        (
            _TEXT,
            table(("MiniLM", "time"), recording),
            table(("model", "modules", "weights", "direct key", "check"), looks),
            promised(*_promises(figures)),
        )
    )


def _looked() -> list[tuple[str, str]]:
    berts = [(name, f"BERT, {layers} layers of {width}") for name, (layers, width) in BERTS.items()]
    return [("minilm", "MiniLM"), *berts]


def _look(figures: Figures, name: str, words: str) -> tuple[str, ...]:
    size = f"{median(figures, f'{name}.weights_bytes') / 1e6:.0f} MB"
    taken = (span(figures[f"{name}.{part}_s"]) for part in ("key", "check"))
    return words, f"{median(figures, f'{name}.modules_count'):.0f}", size, *taken


def _promises(figures: Figures) -> list[Promise]:
    plain_s = median(figures, "record.export_s")
    share = (median(figures, "record.recorded_s") + median(figures, "record.write_s")) / plain_s - 1
    check_s, weights = median(figures, "minilm.check_s"), _check_ratio(figures, "large", "many")
    return [
        Promise("recording, of the export", f"{share:.0%}", "at most 30 %", share <= 0.3),
        Promise("check of MiniLM", seconds(check_s), "at most 6 ms", check_s <= 0.006),
        Promise("check with 1 GB, times that with few MB", f"{weights:.3g}", "at most 1.3", weights <= 1.3),
    ]


def _check_ratio(figures: Figures, one: str, other: str) -> float:
    return median(figures, f"{one}.check_s") / median(figures, f"{other}.check_s")
