"""The tool that compiles architectures of public libraries, with networks of torch alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.architectures import catalogue, direct, evidence, steps
from tests.architectures.architecture import create, floats
from tests.architectures.page import markdown

if TYPE_CHECKING:
    from pathlib import Path

    from tests.architectures.architecture import Call


def _network() -> Call:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8)), (floats(4),), {}


class _Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


def _refused() -> Call:
    return _Branches(), (floats(4),), {}


@pytest.fixture
def _listed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"torch/network": _network, "torch/branches": _refused}
    monkeypatch.setattr(catalogue, "_architectures", lambda group: table)


def _row(name: str, **values: Any) -> dict[str, Any]:
    figures = {"seconds": 1.0, "total_s": 2.0, "torch": "2.13.0", "trtcache_code": "0" * 12, "cores": 2}
    right = {"outcome": "compiled", "off_by": 0.0, "hit_off": "yes", "direct": "hit", "refit": "yes", "dynamic": "yes"}
    return {"name": name, **right, **figures, **values}


@pytest.mark.usefixtures("_listed")
def test_an_architecture_is_compiled_compared_refitted_and_hit(interpreter: str, tmp_path: Path) -> None:
    """Both steps of one that works: each column of its row is yes."""
    trial = steps.Trial("torch/network", interpreter, tmp_path / "cache")
    row = steps.compile_first(trial)
    assert (row["outcome"], row["left"], row["dynamic"], row["refit"]) == ("compiled", 0, "yes", "yes")
    hit = steps.hit_second(trial, is_dynamic=row["is_dynamic"])
    assert (hit["hit_on"], hit["direct"], hit["hit_off"], hit["route_off"]) == ("yes", "hit", "yes", "alias")


@pytest.mark.usefixtures("_listed")
def test_a_failure_of_torch_export_is_its_own(interpreter: str, tmp_path: Path) -> None:
    """Who fails is found by trying without trtcache."""
    row = steps.compile_first(steps.Trial("torch/branches", interpreter, tmp_path / "cache"))
    assert (row["outcome"], row["by"]) == ("failed", "torch.export")


def test_two_seeds_differ_in_every_weight() -> None:
    """Also in those that a library initializes to 0 or 1."""
    first, second = (create(_network, seed)[0].state_dict() for seed in (0, 1))
    same = [name for name, weight in first.items() if torch.equal(weight, second[name])]
    assert same == ["2.num_batches_tracked"]


def test_the_list_is_large_enough() -> None:
    """The evidence is of at least 139 architectures, 72 of them of transformers."""
    names = [name for group in catalogue.GROUPS for name in catalogue.names_of(group)]
    assert len(names) == len(set(names)) >= 139
    assert len(catalogue.names_of("transformers")) == 72


def test_results_of_another_torch_or_trtcache_are_run_again(tmp_path: Path) -> None:
    """Unless they are to be kept; of several results of one architecture the last counts."""
    state = tmp_path / "results.jsonl"
    rows = [_row("a/x", torch="2.11.0"), _row("a/y", seconds=3.0), _row("a/y", seconds=4.0)]
    state.write_text("".join(json.dumps(row) + "\n" for row in rows))
    versions = {"torch": "2.13.0", "trtcache_code": "0" * 12}
    known = evidence.read_rows(state, versions)
    assert {name: row["seconds"] for name, row in known.items()} == {"a/y": 4.0}
    assert set(evidence.read_rows(state, None)) == {"a/x", "a/y"}


def test_the_page_counts_and_names_what_failed() -> None:
    """Totals first; then reasons with the architectures that they apply to; no path of this machine."""
    rows = [
        _row("a/right"),
        _row("a/wrong", outcome="wrong", off_by=0.5),
        _row(
            "b/miss",
            direct="off: argument 0 is of class f.<locals>.A",
            dynamic="no: GuardError: /home/me/site-packages/b/model.py",
        ),
        {**_row("b/failed"), "outcome": "failed", "by": "torch.export", "why": "no branch"},
    ]
    names = [row["name"] for row in rows]
    text = markdown([*names, "b/later"], {row["name"]: row for row in rows})
    assert "| compile | 3 of 4 |" in text
    assert "| wrong answers | 1 |" in text
    assert "| hit with direct mode | 2 of 3 |" in text
    assert "- torch.export: no branch (b/failed)" in text
    assert "- off: argument 0 is of class f.\\<locals>.A (b/miss)" in text
    assert "**1 have not been run yet**" in text
    assert "/home/me" not in text


def test_a_run_goes_on_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With nothing left to run it only writes the page."""
    state, page = tmp_path / "results.jsonl", tmp_path / "models.md"
    row = {**_row("timm/vit"), **evidence.current_versions()}
    state.write_text(json.dumps(row) + "\n")
    evidence.main(["--state", str(state), "--page", str(page), "--libraries", str(tmp_path)], names=["timm/vit"])
    assert "| compile | 1 of 1 |" in page.read_text()
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_listed")
def test_direct_mode_is_recorded_and_verified_with_other_weights(interpreter: str, tmp_path: Path) -> None:
    """Both steps of one that can be exported."""
    trial = steps.Trial("torch/network", interpreter, tmp_path / "cache")
    assert steps.record(trial)["first"] == "miss: no matching manifest"
    row = steps.verify(trial)
    assert (row["on"], row["verify"], row["library_version"]) == ("hit", "verified", torch.__version__)
    assert direct.outcome(row) == "verified"


def test_the_page_of_direct_mode_counts_each_version_of_a_library() -> None:
    """A hit whose export gives another program is different; one that could not be exported has its reason."""
    right = {"on": "hit", "verify": "verified", "torch": "2.13.0", "library_version": "1.0"}
    rows = [
        {"name": "a/x", **right},
        {"name": "a/x", **right, "library_version": "2.0"},
        {"name": "a/y", **right, "verify": "refused: it has the program 12"},
        {"name": "a/z", **right, "on": "off: argument 0 is of class Box", "verify": "off"},
        {"name": "b/x", "died": "ExportError: no branch", "torch": "2.13.0"},
    ]
    text = direct.markdown(rows)
    assert "| a | 1.0 | 3 | 1 | 1 |" in text
    assert "| a | 2.0 | 1 | 1 | 0 |" in text
    assert "| all |  | 4 | 2 | 1 |" in text
    assert "- not exported: ExportError: no branch (b/x)" in text
