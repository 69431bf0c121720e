"""Direct mode: what recording, keys and replays take. What a hit takes is in ``benchmarks.start``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, span, table
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

What direct mode adds to an export of MiniLM, once: the trace of the model's operations, its comparison with those of
the exported program, and the manifest. And what it takes at each hit, for BERTs of few and many modules and of small
and large weights: the direct key, reading the manifest, and the replay of the model without values. Recording: medians
of 5, each after an export. The rest: medians of 15, in one process. What a direct hit takes from the call is above.
"""


def measure(_folder: Path, _effort: Effort) -> Samples:
    """Return the seconds of recording, and of keys and replays."""
    figures = [_prefixed("record", child(PROCESS, "record")), _prefixed("minilm", child(PROCESS, "look"))]
    figures += [_prefixed(name, child(PROCESS, "bert", *shape)) for name, shape in BERTS.items()]
    return gathered(figures)


def _prefixed(name: str, taken: dict[str, list[float]]) -> dict[str, list[float]]:
    return {f"{name}.{figure}": value for figure, value in taken.items()}


def section(figures: Figures) -> str:
    """Return the section of the page."""
    parts = {
        "export_s": "an export",
        "collect_s": "the functions that run in the export",
        "record_s": "the trace, compared with that of the program",
        "write_s": "the manifest",
    }
    recording = [(words, span(figures[f"record.{part}"])) for part, words in parts.items()]
    looks = [_look(figures, name, words) for name, words in _looked()]
    return "\n".join(
        (
            _TEXT,
            table(("MiniLM", "time"), recording),
            table(("model", "modules", "operations", "weights", "direct key", "manifest read", "replay"), looks),
            promised(*_promises(figures)),
        )
    )


def _looked() -> list[tuple[str, str]]:
    berts = [(name, f"BERT, {layers} layers of {width}") for name, (layers, width) in BERTS.items()]
    return [("minilm", "MiniLM"), *berts]


def _look(figures: Figures, name: str, words: str) -> tuple[str, ...]:
    counts = (f"{median(figures, f'{name}.{what}_count'):.0f}" for what in ("modules", "operations"))
    size = f"{median(figures, f'{name}.weights_bytes') / 1e6:.0f} MB"
    taken = (span(figures[f"{name}.{part}_s"]) for part in ("key", "read", "replay"))
    return words, *counts, size, *taken


def _promises(figures: Figures) -> list[Promise]:
    export_s = median(figures, "record.export_s")
    recorded = sum(median(figures, f"record.{part}_s") for part in ("collect", "record", "write")) / export_s
    found_s = [_found_s(figures, name) for name in ("minilm", "large", "many")]
    share, weights = found_s[0] / export_s, found_s[1] / found_s[2]
    return [
        Promise("recording, of the export", f"{recorded:.0%}", "at most 30 %", recorded <= 0.3),
        Promise("key, manifest and replay of MiniLM, of the export", f"{share:.1%}", "at most 10 %", share <= 0.1),
        Promise("the same with 1 GB, times that with few MB", f"{weights:.3g}", "at most 1.3", weights <= 1.3),
    ]


def _found_s(figures: Figures, name: str) -> float:
    """Return the seconds from a model to the manifest of its operations."""
    return sum(median(figures, f"{name}.{part}_s") for part in ("key", "read", "replay"))
