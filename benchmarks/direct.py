"""Direct mode: a hit of a new process beside others', and what recording and checks take."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.report import Figures

PROCESS, MODEL = "benchmarks.direct_process", "benchmarks.model_process"
BERTS = {"few": ("6", "64"), "many": ("24", "64"), "large": ("24", "896")}
"""Layers and width: few modules, four times as many, and the same many with 1 GB of weights."""

_TEXT = """\
## Direct mode

A hit of MiniLM in new processes that took turns, from the call of `compile` or of the loader to the first output. Then
what recording adds to an export, once, and what the direct key and the check of a manifest take at each hit, for BERTs
of few and many modules and of small and large weights.
"""


def measure(folder: Path, rounds: int) -> Samples:
    """Return the seconds of a hit beside others', of recording, and of keys and checks."""
    environment = {"TRTCACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    child(MODEL, "torch_compile", environment=environment)
    child(MODEL, "extract", str(folder), environment=environment)
    figures = [_prefixed("first", child(PROCESS, "hit", environment=environment))]
    for turn in range(rounds):
        sys.stderr.write(f"  round {turn + 1} of {rounds}\n")
        figures.append(_prefixed("hit", child(PROCESS, "hit", environment=environment)))
        figures.append(_prefixed("raw", child(MODEL, "raw", str(folder), environment=environment)))
        figures.append(_prefixed("torch_compile", child(MODEL, "torch_compile", environment=environment)))
    figures.append(_prefixed("record", child(PROCESS, "record")))
    figures.append(_prefixed("minilm", child(PROCESS, "look")))
    figures += [_prefixed(name, child(PROCESS, "bert", *shape)) for name, shape in BERTS.items()]
    return gathered(figures)


def _prefixed(name: str, taken: dict[str, float]) -> dict[str, float]:
    return {f"{name}.{figure}": value for figure, value in taken.items()}


def section(figures: Figures) -> str:
    """Return the section of the page."""
    ways = {"hit": "`trtcache.compile`, direct", "raw": "torch's loader", "torch_compile": "`torch.compile`, warm"}
    hits = [(words, span(figures[f"{way}.total_s"]), _ratio(figures, way)) for way, words in ways.items()]
    looks = [_look(figures, name, words) for name, words in _looked()]
    return "\n".join(
        (
            _TEXT,
            table(("way", "seconds", "of a direct hit's"), hits),
            table(("model", "modules", "weights", "direct key", "check"), looks),
            promised(*_promises(figures)),
        )
    )


def _looked() -> list[tuple[str, str]]:
    berts = [(name, f"BERT, {layers} layers of {width}") for name, (layers, width) in BERTS.items()]
    return [("minilm", "MiniLM"), *berts]


def _look(figures: Figures, name: str, words: str) -> tuple[str, ...]:
    size = f"{median(figures, f'{name}.weights_bytes') / 1e6:.0f} MB"
    taken = (seconds(median(figures, f"{name}.{part}_s")) for part in ("key", "check"))
    return words, f"{median(figures, f'{name}.modules_count'):.0f}", size, *taken


def _ratio(figures: Figures, way: str) -> str:
    return f"{median(figures, f'{way}.total_s') / median(figures, 'hit.total_s'):.3g}"


def _promises(figures: Figures) -> list[Promise]:
    above_s = median(figures, "hit.total_s") - median(figures, "raw.total_s")
    times = median(figures, "torch_compile.total_s") / median(figures, "hit.total_s")
    plain_s = median(figures, "record.export_s")
    share = (median(figures, "record.recorded_s") + median(figures, "record.write_s")) / plain_s - 1
    check_s, weights = median(figures, "minilm.check_s"), _check_ratio(figures, "large", "many")
    return [
        Promise("a direct hit above torch's loader", seconds(above_s), "at most 25 ms", above_s <= 0.025),
        Promise("`torch.compile` warm, times a direct hit", f"{times:.3g}", "at least 60", times >= 60),
        Promise("recording, of the export", f"{share:.0%}", "at most 30 %", share <= 0.3),
        Promise("check of MiniLM", seconds(check_s), "at most 6 ms", check_s <= 0.006),
        Promise("check with 1 GB, times that with few MB", f"{weights:.3g}", "at most 1.3", weights <= 1.3),
    ]


def _check_ratio(figures: Figures, one: str, other: str) -> float:
    return median(figures, f"{one}.check_s") / median(figures, f"{other}.check_s")
