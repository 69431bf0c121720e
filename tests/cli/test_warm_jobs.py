"""``trtcache warm --on``: cells as jobs of submitit's local executor, which starts processes as Slurm's does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from trtcache.errors import SettingsError
from trtcache_cli.matrix import read_matrix
from trtcache_cli.termination import Terminated, raise_terminated
from trtcache_cli.warm_emit import emit
from trtcache_cli.warm_job import build_cell
from trtcache_cli.warm_jobs import interrupts_later, run_jobs
from trtcache_cli.warm_run import claiming_environ, effective_environ
from trtcache_cli.warm_slurm import SlurmJobs, SubmititJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .conftest import Result

submitit = pytest.importorskip("submitit", reason="WAS NOT TRIED: submitit is not installed")

ZOO = """
import os, time
from pathlib import Path
import torch
from tests.models import Affine

def affine():
    torch.manual_seed(0)
    return Affine(), (torch.randn(5, 4),)

def nothing():
    return None

def killed():
    os.kill(os.getppid(), 9)
    os._exit(1)

def slow():
    Path("pid").write_text(str(os.getpid()))
    time.sleep(60)
"""


class LocalJobs(SubmititJobs):
    """Jobs of submitit's executor for this machine."""

    def _executor(self, image: str) -> Any:
        executor = submitit.LocalExecutor(self.folder)
        executor.update_parameters(timeout_min=5)
        return executor

    def _read_states(self) -> Mapping[str, str]:
        return {job.job_id: job.state for job in self._running.values()}

    def _cancel(self, jobs: Sequence[Any]) -> None:
        for job in jobs:
            job.cancel()
            job._process.wait()


@pytest.fixture
def matrix(interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matrix of functions."""
    (tmp_path / "zoo.py").write_text(ZOO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # of the processes that build
    path = tmp_path / "matrix.toml"
    functions = '["zoo:affine", "zoo:affine", "zoo:nothing", "zoo:killed", "zoo:slow"]'
    path.write_text(f'[defaults]\nbackend = "{interpreter}"\n[[cells]]\nfile = {functions}\n')
    return path


@pytest.fixture
def jobs(tmp_path: Path, root: Path, matrix: Path, monkeypatch: pytest.MonkeyPatch) -> LocalJobs:
    """Jobs of this machine; one that is gone is noticed soon."""
    monkeypatch.setattr("trtcache_cli.warm_slurm._STATES_S", 0.1)
    monkeypatch.setattr("trtcache_cli.warm_slurm._GONE_S", 1.0)
    return LocalJobs(cache_dir=None, environ={"TRTCACHE_DIR": str(root)})


@pytest.mark.slow
def test_cells_are_jobs(jobs: LocalJobs, matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its outcome; a job that dies without a result is a failure with the end of its log."""
    outcomes = run_jobs(jobs, read_matrix(matrix).cells[:4])
    assert sorted((outcome.cell.number, outcome.outcome) for outcome in outcomes) == [
        *((0, "built"), (1, "built")),  # this backend has another toolchain in each process
        *((2, "failed"), (3, "failed")),
    ]
    why = {outcome.cell.number: outcome.why for outcome in outcomes}
    assert "it has to return (model, args)" in why[2]
    assert "without a result" in why[3]
    err = capsys.readouterr().err
    assert sum(line.startswith("cell ") for line in err.splitlines()) == 4
    assert "submitted 4 cells" in err
    jobs.close()
    assert list(tmp_path.glob("trtcache-warm-*/*_log.err"))


@pytest.mark.slow
def test_nothing_is_left_behind_where_all_is_well(jobs: LocalJobs, matrix: Path, tmp_path: Path) -> None:
    """The folder of logs and results is removed; it is this user's alone."""
    assert jobs.folder.stat().st_mode & 0o777 == 0o700
    (outcome,) = run_jobs(jobs, read_matrix(matrix).cells[:1])
    jobs.close()
    assert outcome.outcome == "built"
    assert len(outcome.keys[0]) == 64
    assert not list(tmp_path.glob("trtcache-warm-*"))


def test_an_interrupt_cancels_the_jobs(
    jobs: LocalJobs, matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they have started ends, too."""

    def poll() -> list[Any]:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(jobs, "poll", poll)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, read_matrix(matrix).cells[4:])
    process = f"/proc/{(tmp_path / 'pid').read_text()}"
    ends_s = time.monotonic() + 120
    while os.path.exists(process):  # noqa: PTH110
        assert time.monotonic() < ends_s
        time.sleep(0.1)


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_a_scheduler_that_is_not_here(
    name: str, run: Callable[..., Result], matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error says what is missing."""
    monkeypatch.setitem(sys.modules, "submitit" if name == "slurm" else "ray", None)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/sbatch")
    done = run("warm", matrix, "--on", name)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert f"pip install 'trtcache[{name}]'" in done.err


def test_a_host_that_does_not_submit(
    run: Callable[..., Result], matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's commands are missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("warm", matrix, "--on", "slurm")
    assert (done.code, "this is no submit host of Slurm" in done.err) == (2, True)


@pytest.mark.parametrize("option", [["--emit", "sbatch"], ["--emit", "github"], ["--on", "slurm"], ["--on", "ray"]])
def test_a_program_that_cannot_be_read_is_not_submitted(
    option: list[str], run: Callable[..., Result], matrix: Path, tmp_path: Path
) -> None:
    """Nor is anything else of the matrix: one error names the cell."""
    (tmp_path / "loop.pt2").symlink_to(tmp_path / "loop.pt2")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "text.pt2").write_text("no program")
    for name in ("loop.pt2", "folder.onnx", "text.pt2", "missing.pt2"):
        matrix.write_text(f'[[cells]]\nfile = ["zoo:affine", "{name}"]\n')
        done = run("warm", matrix, *option)
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done.err
        assert f"cell 1, {name}" in done.err
    assert not list(tmp_path.glob("trtcache-warm-*"))


def test_the_resources_of_the_matrix_are_options_of_sbatch(
    matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are written there: names with hyphens, texts with spaces, and true for an option without a value."""
    resources = 'time = "1-00:00:00"\ncpus-per-task = 4\nexclusive = true\ncomment = "a b"\n'
    matrix.write_text(f'[defaults.slurm]\n{resources}[[cells]]\nfile = ["zoo:affine", "zoo:slow"]\n')
    lines = {"--time=1-00:00:00", "--cpus-per-task=4", "--exclusive", "--comment='a b'", "--requeue"}
    read = read_matrix(matrix)
    script = emit("sbatch", read, read.cells, 4).splitlines()
    assert {f"#SBATCH {line}" for line in (*lines, "--array=0-1%4", "--job-name=trtcache-warm")} <= set(script)
    for command in ("sbatch", "srun"):
        (tmp_path / command).write_text("#!/bin/sh\necho Submitted batch job 7\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    slurm = SlurmJobs(read, most=4, cache_dir=None, environ={})
    slurm.submit(read.cells)
    script = (slurm.folder / "7_submission.sh").read_text().splitlines()
    assert {f"#SBATCH {line}" for line in (*lines, "--array=0-1%2", "--job-name=trtcache-warm")} <= set(script)
    assert not [line for line in script if "--wckey" in line or "srun" in line]
    # Slurm requeues by default, and an option that is false is none.
    given = "[defaults.slurm]\nrequeue = false\nexclusive = false\n"
    matrix.write_text(f'{given}[[cells]]\nfile = ["zoo:affine", "zoo:slow"]\n')
    read = read_matrix(matrix)
    slurm = SlurmJobs(read, most=4, cache_dir=None, environ={})
    slurm.submit(read.cells)
    for script in (emit("sbatch", read, read.cells, 4), (slurm.folder / "7_submission.sh").read_text()):
        assert "#SBATCH --no-requeue" in script.splitlines()
        assert not [line for line in script.splitlines() if "--requeue" in line or "exclusive" in line]
    matrix.write_text('[defaults.slurm]\narray = "0-3"\n[[cells]]\nfile = "zoo:affine"\n')
    with pytest.raises(SettingsError, match=r"defaults\.slurm\.array: the cells are the array"):
        SlurmJobs(read_matrix(matrix), most=4, cache_dir=None, environ={})


def test_claims_are_on_for_the_remote_that_is_written_to(tmp_path: Path) -> None:
    """Unless its URL says otherwise; a web folder takes none."""
    for given, claiming in {
        "s3://a/b s3://c/d?mode=write": "s3://a/b s3://c/d?mode=write&claims=1",
        "s3://c/d?mode=write&claims=0": "s3://c/d?mode=write&claims=0",
        "https://c/d?mode=write s3://c/e?mode=write": "https://c/d?mode=write s3://c/e?mode=write",
    }.items():
        assert claiming_environ({"TRTCACHE_REMOTE": given}) == {"TRTCACHE_REMOTE": claiming}
    assert claiming_environ({"TRTCACHE_REMOTE": "s3://a/b"}) == {}
    config = tmp_path / "trtcache.toml"
    config.write_text('dir = "/srv/engines"\nremotes = ["s3://c/d?mode=write"]\n')
    environ = {"TRTCACHE_CONFIG": str(config), "HOME": "/root", "TRTCACHE_PATH": "/a:/b"}
    assert effective_environ(environ) == {
        "TRTCACHE_CONFIG": str(config),
        "TRTCACHE_PATH": "/a:/b",
        "TRTCACHE_REMOTE": "s3://c/d?mode=write&claims=1",
    }


def test_a_job_runs_where_its_modules_are(matrix: Path, tmp_path: Path) -> None:
    """The function of a job imports nothing of torch, and a folder that the host does not have is no error."""
    code = "import sys, trtcache_cli.warm_job as job; assert 'torch' not in sys.modules; "
    code += "print(job.build_cell(['--help'], {'A': 'b'}, '/no/such/folder')[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_a_job_may_print_in_any_encoding(matrix: Path, tmp_path: Path) -> None:
    """What a compiler prints is no error of its own."""
    (tmp_path / "latin.py").write_text("import os\nos.write(2, bytes([255, 10]))\nraise ValueError('no model')\n")
    code, _, err, _ = build_cell(["--", "latin:model"], {}, str(tmp_path))
    assert (code, "no model" in err) == (2, True)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_number_of_a_job(signal_number: signal.Signals) -> None:
    """Also where another thread, such as that of the table on a terminal, is given the signal."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    numbers = []

    def submit() -> None:
        with interrupts_later():
            os.kill(os.getpid(), signal_number)
            time.sleep(0.2)
            numbers.append(7)

    try:
        with raise_terminated(), pytest.raises(KeyboardInterrupt):
            submit()
    finally:
        done.set()
        thread.join()
    assert numbers == [7]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_ends_the_command_cancels_the_jobs(
    jobs: LocalJobs, matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``timeout`` and a CI system send SIGTERM; a second one does not keep it from cancelling."""
    cancelled = []

    def poll() -> list[Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return []

    def cancel() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        cancelled.append(True)
        return 1

    monkeypatch.setattr(jobs, "submit", lambda _: None)
    monkeypatch.setattr(jobs, "poll", poll)
    monkeypatch.setattr(jobs, "cancel", cancel)
    with pytest.raises(Terminated) as caught:
        run_jobs(jobs, read_matrix(matrix).cells[:1])
    assert (cancelled, caught.value.exit_code) == ([True], 143)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 0", "1 jobs were cancelled"), ("echo scancel: error: no controller >&2; exit 1", "error: no controller")],
    ids=["cancelled", "refused"],
)
def test_the_answer_to_a_cancellation_is_reported(
    script: str,
    said: str,
    matrix: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Jobs that Slurm did not cancel are not called cancelled."""
    for command, text in (("sbatch", "echo Submitted batch job 7"), ("srun", ""), ("scancel", script)):
        (tmp_path / command).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    read = read_matrix(matrix)
    slurm = SlurmJobs(read, most=4, cache_dir=None, environ={})

    def interrupt() -> list[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(slurm, "poll", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(slurm, read.cells[:1])
    err = capsys.readouterr().err
    assert said in err
    assert ("were cancelled" in err) == (script == "exit 0")
