"""What measures: rounds that end in time, and a page of what was found."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import calls, engine_cache, report
from benchmarks.effort import Effort
from benchmarks.start_models import SUBJECTS as MODELS
from benchmarks.start_page import MODELS as LABELS
from benchmarks.subjects import SUBJECTS
from benchmarks.timing import summarised


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("took_s", "budget_s", "rounds"), [(10, 1000, 5), (10, 25, 2), (10, 30, 3), (10, 1, 1)])
def test_no_round_begins_that_would_end_too_late(took_s: float, budget_s: float, rounds: int) -> None:
    """There are as many rounds as fit into the time, one at least, and no more than were asked for."""
    clock = Clock()
    effort = Effort.of(5, budget_s=budget_s, clock=clock)
    turns = []
    for turn in effort.turns():
        turns.append(turn)
        clock.now_s += took_s
    assert turns == list(range(rounds))


def test_a_caller_can_ask_for_fewer_rounds() -> None:
    """The lesser of both numbers counts."""
    effort = Effort.of(5, budget_s=1000)
    assert list(effort.turns(2)) == [0, 1]
    assert list(effort.turns(9)) == [0, 1, 2, 3, 4]


def test_the_page_says_what_failed_and_keeps_the_rest() -> None:
    """A subject without figures is named, one with figures has its command, its seconds and its number of samples."""
    run: report.Run = {"began": "2026-01-01 00:00", "load": "0.1", "took_s": 30.0}
    figures = summarised({"import_s": [0.001] * 9, "import_cache_s": [0.05] * 9, "install_bytes": [5e7]})
    page = report.markdown(
        {"machine": {"cores": "2"}, "runs": {"store": run, "footprint": run}, "subjects": {"footprint": figures}}
    )
    assert "## store\n\n**It failed in this run.**" in page
    assert "| base install | 50 MB | under 60 MB | yes |" in page
    assert "`make bench ONLY=footprint`: 30 s, begun at 2026-01-01 00:00 with a load of 0.1; 1 to 9 samples" in page
    assert "All of this page took 1.0 minutes." in page


def test_every_subject_can_be_measured_and_shown() -> None:
    """The table's names are modules with both functions; models have one label each."""
    for name in SUBJECTS:
        module = import_module(f"benchmarks.{name}")
        assert callable(module.measure), name
        assert callable(module.section), name
    assert list(MODELS) == list(LABELS)


def test_the_readme_has_the_later_calls_of_the_page() -> None:
    """In its table are the medians of the stored figures, if there are any; writing it changes nothing else."""
    root = Path(__file__).parents[1]
    readme = (root / "README.md").read_text()
    figures = json.loads((root / "docs" / "benchmarks.json").read_text())["subjects"].get("calls")
    if figures:
        assert report.insert(readme, "later calls", calls.short_table(figures)) == readme
    made = summarised({f"{name}.{way}.call_s": [0.02, 0.0234] for name in calls.MODELS for way in calls.WAYS})
    written = report.insert(readme, "later calls", calls.short_table(made))
    assert "| packed | 21.7 |" in written
    assert len(written.splitlines()) == len(readme.splitlines())
    with pytest.raises(ValueError, match="no place for later calls"):
        report.insert("", "later calls", "")


def test_a_renewed_section_leaves_the_others_as_they_are() -> None:
    """Those whose stored figures this version cannot read are kept, and the page is that of the writer."""
    docs = Path(__file__).parents[1] / "docs"
    page, document = (docs / "benchmarks.md").read_text(), json.loads((docs / "benchmarks.json").read_text())
    sections = report.sections_of(page)
    assert sections.keys() == document["runs"].keys()
    assert report.markdown(document, {name: text for name, text in sections.items() if name != "calls"}) == page


_CACHE = """
from torch_tensorrt._Input import Input
from torch_tensorrt.dynamo._settings import CompilationSettings, _SETTINGS_TO_BE_ENGINE_INVARIANT

class DiskEngineCache:
    def __init__(self, folder, size):
        self.entries = {}
    def insert(self, key, entry):
        self.entries[key] = entry
    def check(self, key):
        return self.entries.get(key)
"""


def test_an_engine_cache_is_loaded_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is executed without torch_tensorrt, which is as much imported afterwards as before."""
    before = {name for name in sys.modules if name.startswith("torch_tensorrt")}
    (tmp_path / "cache.py").write_text(_CACHE)
    monkeypatch.setattr(engine_cache, "_SOURCE", tmp_path / "cache.py")
    actions = engine_cache.DiskEngineCache(tmp_path / "cache", b"plan").actions()
    actions["put"]()
    actions["get"]()
    assert engine_cache.is_there()
    assert {name for name in sys.modules if name.startswith("torch_tensorrt")} == before


def test_the_chart_has_no_bar_without_a_figure(tmp_path: Path) -> None:
    """A way that was not measured is left out, and one that failed for a model says so instead of 0 seconds."""
    pytest.importorskip("matplotlib", reason="the charts: pip install 'trtcache[plot]'")
    from benchmarks import plot

    values = {"median": 2.0, "least": 2.0, "most": 2.0, "values": [2.0]}
    ways = ("minilm.direct", "minilm.eager", "minilm.cold", "bert.direct", "bert.cold")
    figures = {f"{way}.{what}_s": values for way in ways for what in ("process", "call")}
    plot.draw({"subjects": {"start": figures}}, tmp_path)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "benchmarks-start.svg").read_text())
    assert {"eager", "trtcache.compile, hit, direct", "MiniLM", "BERT of 1 GB"} <= set(texts)
    assert "trtcache infer" not in texts
    assert texts.count("failed") == 1
