"""The self-test: its steps in this process, its processes, and its report."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.conftest import environ_untraced
from trtcache.backends.registry import load_backend
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX
from trtcache.testing.interpreter import Interpreter
from trtcache_cli import selftest, selftest_process
from trtcache_cli.selftest_process import run_step
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
    found = {step: run_step(step, subject) for step in STEPS if step != "environment"}
    assert {step: one.status for step, one in found.items()} == dict.fromkeys(found, OK), found
    assert "hit: found, verified" in found["hit"].saw
    assert "restored bit for bit" in found["refit"].saw
    assert "corrupt:" in found["damage"].saw
    assert "toolchain.torch: 0.0.0 -> " in found["version"].saw
    assert found["version"].saw.endswith("quarantined (key)")


@dataclass(frozen=True, slots=True)
class Wrong(Subject):
    """A subject whose eager outputs are not those of the compiled model."""

    def model(self, seed: int = 0) -> SelfTest:
        """Return another model each time."""
        return Subject.model(self, int(torch.randint(0, 1000, ()).item()))


def test_a_wrong_answer_is_a_failure(subject: Subject) -> None:
    """The result has the number of rows, the difference, and the tolerance."""
    assert run_step("build", subject).status == OK
    result = run_step("run", Wrong(subject.backend, "cpu", None, subject.root, {}))
    assert result.status == FAILED
    assert "for 1 rows the output is off by" in result.saw


def test_a_step_out_of_turn_is_a_failure(subject: Subject) -> None:
    """A hit in an empty cache, and a build in one that is not empty."""
    missing = run_step("hit", subject)
    assert (missing.status, "no entry for" in missing.saw) == (FAILED, True)
    assert str(subject.root.parent) not in missing.saw
    assert run_step("build", subject).status == OK
    assert "the cache was empty, but the outcome is hit" in run_step("build", subject).saw


def test_a_defect_is_a_failure_too(subject: Subject) -> None:
    """Whatever is raised, the step reports it under its own name."""
    result = run_step("damage", replace(subject, device="nowhere"))
    assert result.status == FAILED
    assert result.saw.startswith("RuntimeError: ")


def test_rtx_builds_for_a_usual_gpu_where_it_has_none() -> None:
    """The other backends build for this machine."""
    assert load_backend("aot_inductor").selftest().target is None
    if not torch.cuda.is_available() and TENSORRT_RTX.installed:
        assert load_backend("tensorrt_rtx").selftest().target == "sm_89"


SAYING = "import json, sys; print('noise'); print(json.dumps({'end': {'step': 'hit', 'status': 'ok', 'saw': 'it'}})); "


@pytest.mark.parametrize(
    ("code", "limit_s", "why"),
    [
        (
            "import os, signal; sys.stdout.flush(); os.kill(os.getpid(), signal.SIGSEGV)",
            60.0,
            "was killed by SIGSEGV; two",
        ),
        ("sys.stdout.flush(); sys.exit('the last words')", 60.0, "the last words"),
        ("sys.stdout.flush(); sys.stdin.read(); import time; time.sleep(60)", 1.0, "no answer after 1.0 s"),
    ],
    ids=["killed", "failed", "hung"],
)
def test_a_process_that_ends_early_takes_its_later_steps_along(
    tmp_path: Path, code: str, limit_s: float, why: str
) -> None:
    """Earlier results are kept, and the remaining steps have failed, with the reason."""
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
def test_a_backend_that_is_not_installed_is_reported(run: Callable[..., Result]) -> None:
    """Exit code 6, and the install command."""
    done = run("selftest", "--backend", "tensorrt")
    assert done.code == 6
    assert "pip install 'trtcache[tensorrt]'" in done.err


def test_any_registered_backend_can_be_tested(run: Callable[..., Result], interpreter: str, monkeypatch: Any) -> None:
    """By its name; an unknown one gets a suggestion, before anything is built."""
    done = run("selftest", "--backend", "interpretr")
    assert done.code == 2
    assert "did you mean 'interpreter'" in done.err
    monkeypatch.setattr(selftest, "run_process", lambda *args, **_: [StepResult(step, OK, "x") for step in args[3]])
    assert run("selftest", "--backend", interpreter).code == 0


def test_a_backend_without_refit_has_to_refuse_one(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is passed if a refit is an error that changes nothing."""
    monkeypatch.setattr(Interpreter, "capabilities", replace(Interpreter.capabilities, refit=False))
    assert run_step("build", subject).status == OK
    result = run_step("refit", subject)
    assert (result.status, "a refit is refused" in result.saw) == (OK, True), result


def test_a_directory_with_something_in_it_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    """Entries of its cache would be damaged."""
    (tmp_path / "mine").write_text("mine")
    done = run("selftest", "--backend", "aot_inductor", "--keep", tmp_path)
    assert done.code == 2
    assert "it is not empty" in done.err


@pytest.mark.slow
@pytest.mark.skipif(not TENSORRT_RTX.installed, reason="needs TensorRT-RTX")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.usefixtures("quick_grandchildren")
def test_rtx_is_tried_up_to_its_gpu(
    program: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is built and found by another process; running it is not run, with the reason, which is not a failure."""
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


@pytest.mark.parametrize("backend", ["aot_inductor", "tensorrt_rtx"])
def test_the_environment_is_told_in_facts(tmp_path: Path, backend: str) -> None:
    """Versions, GPU and driver, or that there is none; what is not installed is a failure."""
    if backend == "tensorrt_rtx" and not TENSORRT_RTX.installed:
        pytest.skip("needs TensorRT-RTX")
    result = run_step(
        "environment", Subject(backend, "cpu", "sm_89" if backend == "tensorrt_rtx" else None, tmp_path, {})
    )
    assert result.status == OK, result
    assert {"trtcache", "torch", "GPU", "driver", "target"} <= set(result.facts)
    assert ("C++ compiler" in result.facts) == (backend == "aot_inductor")
    assert run_step("environment", Subject("nothing", "cpu", None, tmp_path, {})).status == FAILED


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replace the steps by given results, without a process."""

    def ending(status: str) -> None:
        def process(_backend: str, _device: str, folder: Path, steps: list[str], **_: Any) -> list[StepResult]:
            (folder / "cache").mkdir(exist_ok=True)
            return [StepResult(step, status if step == "run" else OK, "seen", 1.0) for step in steps]

        monkeypatch.setattr(selftest, "run_process", process)

    return ending


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_model_on_a_gpu_that_is_not_here_is_not_run(
    interpreter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The environment is reported, every other step is not run, because torch sees no GPU."""
    asked = {"steps": [*STEPS], "backend": interpreter, "device": "cuda", "root": str(tmp_path / "c" / "cache")}
    selftest_process.main(json.dumps(asked))
    ended = [json.loads(line)["end"] for line in capsys.readouterr().out.splitlines()]
    assert [one["status"] for one in ended] == [OK, *[NOT_RUN] * (len(STEPS) - 1)]
    assert all("torch sees none here" in one["saw"] for one in ended[1:])


@pytest.mark.parametrize(("status", "code"), [(OK, 0), (NOT_RUN, 0), (FAILED, 1)])
def test_a_failed_step_is_the_exit_code(
    run: Callable[..., Result], canned: Callable[[str], None], status: str, code: int
) -> None:
    """A line of fields for each finished step, and the report after them; steps that are not run are not failures."""
    canned(status)
    done = run("selftest", "--backend", "aot_inductor")
    assert done.code == code
    assert [row[:2] for row in done.rows[:4]] == [["environment", OK], ["build", OK], ["hit", OK], ["run", status]]
    assert "\n\n### trtcache selftest: aot_inductor\n" in done.out
    as_json = run("selftest", "--backend", "aot_inductor", "--json")
    assert (as_json.code, as_json.json["ok"], len(as_json.json["steps"])) == (code, code == 0, len(STEPS))


def test_steps_and_a_directory_can_be_named(
    run: Callable[..., Result], canned: Callable[[str], None], tmp_path: Path
) -> None:
    """The environment and the build come first; the directory is created and kept."""
    canned(OK)
    done = run("selftest", "--backend", "aot_inductor", "--step", "run", "--keep", tmp_path / "new", "--json")
    assert [one["step"] for one in done.json["steps"]] == ["environment", "build", "run"]
    assert (tmp_path / "new" / "cache").is_dir()
    assert "trtcache ls --cache-dir" in done.err


def test_a_process_tells_each_step_as_it_ends(
    interpreter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line of JSON for each; without a usable backend the steps after the environment are not run."""
    for backend, statuses in ((interpreter, [OK, OK]), ("nothing", [FAILED, NOT_RUN])):
        root = tmp_path / backend / "cache"
        asked = {"backend": backend, "device": "cpu", "root": str(root), "steps": ["environment", "build"]}
        assert selftest_process.main(json.dumps(asked)) == 0
        lines = [json.loads(line)["end"] for line in capsys.readouterr().out.splitlines()]
        assert [line["status"] for line in lines] == statuses, lines
