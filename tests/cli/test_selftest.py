"""The self-test: its steps in this process, its processes, and its report."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.conftest import environ_untraced
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX
from trtcache_cli import selftest
from trtcache_cli.selftest_environment import default_target
from trtcache_cli.selftest_process import attempt
from trtcache_cli.selftest_result import FAILED, NOT_RUN, OK, STEPS, StepResult, report, summary
from trtcache_cli.selftest_subject import SelfTest, Subject

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

RESULTS = [
    StepResult("environment", OK, "torch | a", 0.5, {"torch": "2.13"}),
    StepResult("build", OK, "built in 3 s", 4.0),
    StepResult("run", NOT_RUN, "needs an RTX GPU: there is none", 1.0),
]


@pytest.fixture
def subject(interpreter: str, tmp_path: Path) -> Subject:
    """The interpreter, which builds in milliseconds, in an empty cache."""
    return Subject(interpreter, "cpu", None, tmp_path / "selftest" / "cache", {})


def test_every_step_sees_what_it_should(subject: Subject) -> None:
    """Build, hit, run, refit, damage and version pass, one after the other, and say what they saw."""
    found = {step: attempt(step, subject) for step in STEPS if step != "environment"}
    assert {step: one.status for step, one in found.items()} == dict.fromkeys(found, OK), found
    assert "hit: found, verified" in found["hit"].saw
    assert "back bit for bit" in found["refit"].saw
    assert "corrupt:" in found["damage"].saw
    assert "toolchain.torch: 0.0.0 -> " in found["version"].saw
    assert found["version"].saw.endswith("put aside (key)")


@dataclass(frozen=True, slots=True)
class Wrong(Subject):
    """A subject whose eager answers are not those of the model that is compiled."""

    def model(self, seed: int = 0) -> SelfTest:
        """Return another model each time."""
        return Subject.model(self, int(torch.randint(0, 1000, ()).item()))


def test_a_wrong_answer_is_a_failure(subject: Subject) -> None:
    """The step says for how many rows, how far it is off, and what is allowed."""
    assert attempt("build", subject).status == OK
    result = attempt("run", Wrong(subject.backend, "cpu", None, subject.root, {}))
    assert result.status == FAILED
    assert "for 1 rows the output is off by" in result.saw


def test_a_step_out_of_turn_is_a_failure(subject: Subject) -> None:
    """A hit in an empty cache, and a build in one that is not empty."""
    missing = attempt("hit", subject)
    assert (missing.status, "no entry for" in missing.saw) == (FAILED, True)
    assert str(subject.root.parent) not in missing.saw
    assert attempt("build", subject).status == OK
    assert "the cache was empty, and yet: hit" in attempt("build", subject).saw


def test_a_defect_is_a_failure_too(subject: Subject) -> None:
    """Whatever is raised, the step reports it under its own name."""
    result = attempt("damage", replace(subject, device="nowhere"))
    assert result.status == FAILED
    assert result.saw.startswith("RuntimeError: ")


def test_rtx_builds_for_a_usual_gpu_where_it_has_none() -> None:
    """The other backends build for this machine."""
    assert default_target("aot_inductor") is None
    if not torch.cuda.is_available():
        assert default_target("tensorrt_rtx") == "sm_89"


SAYING = "import json, sys; print('noise'); print(json.dumps({'end': {'step': 'hit', 'status': 'ok', 'saw': 'it'}})); "


@pytest.mark.parametrize(
    ("code", "limit_s", "why"),
    [
        ("import os, signal; sys.stdout.flush(); os.kill(os.getpid(), signal.SIGSEGV)", 60.0, "died of SIGSEGV; two"),
        ("sys.stdout.flush(); sys.exit('the last words')", 60.0, "the last words"),
        ("sys.stdout.flush(); sys.stdin.read(); import time; time.sleep(60)", 1.0, "no answer after 1.0 s"),
    ],
    ids=["killed", "failed", "hung"],
)
def test_a_process_that_ends_early_takes_its_later_steps_along(
    tmp_path: Path, code: str, limit_s: float, why: str
) -> None:
    """What it told before stays, and the rest failed, with the reason."""
    command = (sys.executable, "-c", SAYING + code)
    found = [*selftest.run_process("aot_inductor", "cpu", tmp_path, ["hit", "run"], command=command, limit_s=limit_s)]
    assert [(one.step, one.status) for one in found] == [("hit", OK), ("run", FAILED)]
    assert found[1].saw.startswith(f"its process ended: {why}")


def test_without_an_engine_nothing_else_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that fails is the failure, and the others are not run."""

    def failing(*args: Any, **_: Any) -> list[StepResult]:
        return [StepResult(step, FAILED if step == "build" else OK, "x") for step in args[3]]

    monkeypatch.setattr(selftest, "run_process", failing)
    found = [*selftest.results_of("aot_inductor", "cpu", tmp_path, {*STEPS})]
    assert [one.status for one in found] == [OK, FAILED, *[NOT_RUN] * 5]


def test_the_report_is_markdown() -> None:
    """A row for each step, bars in cells escaped, the summary above and the facts below."""
    text = report("tensorrt_rtx", RESULTS)
    assert text.startswith("### trtcache selftest: tensorrt_rtx\n\n2 ok, 1 not run, in 5.5 s\n")
    assert "| torch \\| a |" in text
    assert text.endswith("\n- torch: 2.13\n")
    assert summary([replace(RESULTS[0], status=FAILED)]).startswith("1 failed, in")


def test_the_table_has_colours_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Each step with its result, seconds, and what it did and saw."""
    selftest._print_table(RESULTS)
    out = " ".join(capsys.readouterr().out.split())
    assert "STEP RESULT SECONDS WHAT IT DID WHAT IT SAW" in out
    assert "run not run 1.0" in out


@pytest.mark.skipif(TENSORRT.installed, reason="TensorRT is installed")
def test_a_backend_that_is_not_installed_is_told(run: Callable[..., Result]) -> None:
    """Exit code 6, and what to type."""
    done = run("selftest", "--backend", "tensorrt")
    assert done.code == 6
    assert "pip install 'trtcache[torch,tensorrt]'" in done.err


def test_a_directory_with_something_in_it_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    """Entries of its cache would be damaged."""
    (tmp_path / "mine").write_text("mine")
    done = run("selftest", "--backend", "aot_inductor", "--keep", tmp_path)
    assert done.code == 2
    assert "it is not empty" in done.err


@pytest.mark.slow
@pytest.mark.skipif(not TENSORRT_RTX.installed, reason="needs TensorRT-RTX")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_rtx_is_tried_up_to_its_gpu(
    program: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is built and found by another process; running it is not run, with the reason, which is no failure."""
    monkeypatch.setattr("os.environ", environ_untraced())
    steps = [part for step in ("hit", "run") for part in ("--step", step)]
    done = program("selftest", "--backend", "tensorrt_rtx", "--json", *steps, TMPDIR=str(tmp_path))
    assert done.code == 0, done.err
    found = done.json
    assert found["ok"]
    assert [(one["step"], one["status"]) for one in found["steps"]] == [
        ("environment", OK),
        ("build", OK),
        ("hit", OK),
        ("run", NOT_RUN),
    ]
    assert found["steps"][3]["saw"] == "needs an RTX GPU: there is no NVIDIA GPU here"
    assert found["facts"]["TensorRT-RTX"].startswith(TENSORRT_RTX.version)
    assert json.dumps(found["report"])
    assert not [*tmp_path.glob("trtcache*")]
