"""``trtcache warm``: the cells of a matrix are built before they are needed, here or by a scheduler."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.errors import SettingsError
from trtcache_cli.matrix import read_matrix
from trtcache_cli.warm_emit import emit
from trtcache_cli.warm_plan import PlannedCell, total_s
from trtcache_cli.warm_progress import Board
from trtcache_cli.warm_run import Processes, outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Result

MODELS = """
import torch
from tests.models import Affine

def affine():
    torch.manual_seed(0)
    return Affine(), (torch.randn(5, 4),)

def nothing():
    return None
"""
_FRESH = sys.executable  # whatever quick_children puts there
PLAN = """
import sys
from trtcache_cli.main import main

sys.argv = ["trtcache", "warm", sys.argv[1], "--plan", "--json"]
try:
    main()
except SystemExit as error:
    assert not error.code, error
assert "torch" not in sys.modules
"""
X = torch.randn(5, 4)
FAST_OPTIONS = {"cpp.vec_isa_ok": True, "aot_inductor.precompile_headers": True}
FAST = json.dumps([f"inductor.{name}={json.dumps(value)}" for name, value in FAST_OPTIONS.items()])


@pytest.fixture
def matrix(file: Path, tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matrix of a file, a function, a function of no model and a file that does not exist."""
    (tmp_path / "zoo.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # of the processes that build
    path = tmp_path / "matrix.toml"
    path.write_text(
        f'[defaults]\nbackend = "{interpreter}"\n[defaults.slurm]\ntime = "1:00:00"\n'
        f'[defaults.kubernetes]\nimage = "registry/torch:2.13"\n'
        f'volumes = [{{name = "cache", emptyDir = {{}}}}]\n'
        f'volumeMounts = [{{name = "cache", mountPath = "{tmp_path}"}}]\n'
        f'[[cells]]\nfile = ["{file}", "zoo:affine"]\n[[cells]]\nfile = ["zoo:nothing", "none.pt2"]\n'
    )
    return path


def _states(done: Result) -> list[str]:
    return [cell["state"] for cell in done.json["cells"]]


def _plan_without_torch(matrix: Path) -> Any:
    """Return the plan of a process that does not import torch."""
    command = [_FRESH, "-W", "ignore", "-c", PLAN, str(matrix)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_what_misses_is_built_once(run: Callable[..., Result], matrix: Path) -> None:
    """By processes of their own; cells that cannot be built are errors of their own, and the exit code is 1."""
    text = matrix.read_text().replace('"interpreter"', '"aot_inductor"')
    matrix.write_text(text.replace("[defaults.slurm]", f"setting = [{FAST}]\n[defaults.slurm]"))
    assert _states(run("warm", matrix, "--plan", "--json")) == ["unknown", "unknown", "unknown", "impossible"]
    first = run("warm", matrix, "-j", "2", "--json")
    assert first.code == 1
    assert [cell["outcome"] for cell in first.json["cells"]] == ["built", "built", "failed", "failed"]
    assert "it has to return (model, args)" in first.json["cells"][2]["why"]
    assert "does not exist" in first.json["cells"][3]["why"]
    assert len(first.err.splitlines()) == 3  # a line for each cell that was tried

    planned = run("warm", matrix, "--plan", "--json").json
    assert [cell["state"] for cell in planned["cells"]] == ["hit", "unknown", "unknown", "impossible"]
    assert planned["cells"][0]["key"] == first.json["cells"][0]["keys"][0]
    assert planned["expected_s"] > 0
    of_files = matrix.with_name("files.toml")
    of_files.write_text(f'[[cells]]\nfile = "affine.pt2"\nsetting = [{FAST}]\ntarget = ["native", "x86-64-v2"]\n')
    states = [(cell["state"], cell["key"]) for cell in _plan_without_torch(of_files)["cells"]]
    assert states == [("hit", planned["cells"][0]["key"]), ("unknown", None)]
    assert _states(run("warm", matrix, "--plan", "--exact", "--json")) == ["hit", "hit", "impossible", "impossible"]

    second = run("warm", matrix, "--only", "0-1")
    assert (second.code, second.out) == (0, "0 built, 2 hit, 0 failed\n")
    compiled = trtcache.compile(Affine(), (X,), settings={"inductor": FAST_OPTIONS})
    assert compiled.report.partitions[0].outcome == "hit"


@pytest.mark.usefixtures("matrix")
def test_a_plan_of_files_imports_no_torch(tmp_path: Path, file: Path, run: Callable[..., Result]) -> None:
    """And says what a plan with torch says: here that nothing is known of the cells."""
    path = tmp_path / "files.toml"
    path.write_text(f'[[cells]]\nfile = "{file}"\ntarget = ["native", "x86-64-v2"]\n')
    planned = _plan_without_torch(path)
    assert planned == run("warm", path, "--plan", "--json").json
    assert [cell["state"] for cell in planned["cells"]] == ["unknown", "unknown"]


def test_reasons_are_whole_on_a_narrow_terminal(terminal: Callable[..., Result], tmp_path: Path) -> None:
    """On several lines, below the first: the end of a reason says what to do."""
    (tmp_path / "m.toml").write_text('[[cells]]\nfile = ["none.pt2", "zoo:model"]\n')
    out = terminal("warm", tmp_path / "m.toml", "--plan", columns=80).out
    lines = out.splitlines()
    assert all(len(line) <= 80 for line in lines if "impossible," not in line), out
    assert "\u2026" not in out
    whole = "".join(line[lines[0].index("reason") :] for line in lines[1:-1])
    assert "giveatorch.nn.Module,atorch.export.ExportedProgramorthepathofa.pt2file" in whole.replace(" ", ""), out


def test_a_shape_for_a_program_with_sizes_is_named(run: Callable[..., Result], file: Path, tmp_path: Path) -> None:
    """By the option that the matrix has, before anything is built."""
    (tmp_path / "sizes.toml").write_text(f'[[cells]]\nfile = "{file}"\nshape = "x=2x4"\n')
    (cell,) = run("warm", tmp_path / "sizes.toml", "--plan", "--json").json["cells"]
    assert cell["state"] == "impossible"
    assert "--shape" in cell["reason"]
    assert "has sizes of its own" in cell["reason"]


@pytest.mark.parametrize("variable", ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX"])
def test_a_scheduler_says_which_cell(
    variable: str, run: Callable[..., Result], matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number counts among those of ``--only``."""
    monkeypatch.setenv(variable, "1")
    done = run("warm", matrix, "--only", "2,0", "--cell", "auto", "--json")
    assert (done.code, done.json["name"], done.json["outcome"]) == (0, "affine", "built")


def test_the_command_that_is_emitted_builds_what_misses(run: Callable[..., Result], matrix: Path) -> None:
    """An array script for Slurm, a line for GNU parallel, a matrix for GitHub and a Job for Kubernetes."""
    run("warm", matrix, "--cell", "0")
    command = f"trtcache warm {matrix} --only 1-2 --cell"
    unreadable = run("warm", matrix, "--emit", "sbatch")
    assert (unreadable.code, unreadable.out, "cell 3, none.pt2" in unreadable.err) == (2, "", True)
    script = run("warm", matrix, "--only", "0-2", "--emit", "sbatch")
    assert script.out.splitlines()[0] == "#!/bin/bash"
    assert {"#SBATCH --array=0-1", "#SBATCH --time=1:00:00", f"{command} auto"} <= set(script.out.splitlines())
    parallel = run("warm", matrix, "--only", "0-2", "--emit", "parallel").out
    assert parallel.startswith("seq 0 1 | parallel ")
    assert json.loads(run("warm", matrix, "--only", "0-2", "--emit", "github").out) == {
        "include": [{"cell": 1, "name": "zoo:affine", "image": ""}, {"cell": 2, "name": "zoo:nothing", "image": ""}]
    }
    job = json.loads(run("warm", matrix, "--only", "0-2", "--emit", "k8s").out)
    assert (job["kind"], job["spec"]["completions"], job["spec"]["completionMode"]) == ("Job", 2, "Indexed")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["command"]) == ("registry/torch:2.13", [*command.split(), "auto"])
    shown = subprocess.run(["bash", "-n"], input=script.out, text=True, check=True)
    assert shown.returncode == 0


def test_a_kubernetes_job_has_what_a_build_needs(
    run: Callable[..., Result], matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables of trtcache, and fields of the pod; no manifest for engines that would be lost or not signed."""
    text = matrix.read_text()
    emitted = ("warm", matrix, "--only", "0-2", "--emit", "k8s")
    lines = [line for line in text.splitlines() if not line.startswith("volume")]
    matrix.write_text("\n".join(lines))
    done = run(*emitted)
    assert (done.code, done.out, "what the pods build would be lost" in done.err) == (2, "", True), done.err
    own = '[{name = "HOME", value = "/h"}, {name = "AWS", valueFrom = {secretKeyRef = {name = "s", key = "k"}}}]'
    lines.insert(lines.index("[defaults.kubernetes]") + 1, f'env = {own}\nserviceAccountName = "writer"')
    matrix.write_text("\n".join(lines))
    monkeypatch.setenv("TRTCACHE_REMOTE", f"s3://b/p?mode=write&endpoint=http://127.0.0.1:{_closed_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("TRTCACHE_REMOTE_TIMEOUT", "3")
    job = json.loads(run(*emitted).out)
    pod = job["spec"]["template"]["spec"]
    env = {each["name"]: each.get("value", each.get("valueFrom")) for each in pod["containers"][0]["env"]}
    assert env.pop("TRTCACHE_REMOTE") == os.environ["TRTCACHE_REMOTE"] + "&claims=1"
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    assert env == {"TRTCACHE_REMOTE_TIMEOUT": "3", "HOME": "/h", "AWS": secret}
    assert (pod["serviceAccountName"], pod["restartPolicy"]) == ("writer", "Never")
    assert job["spec"]["backoffLimitPerIndex"] == 3
    names = {json.loads(run("warm", matrix, "--only", only, "--emit", "k8s").out)["metadata"]["name"] for only in "12"}
    assert len({*names, job["metadata"]["name"]}) == 3
    assert json.loads(run(*emitted).out) == job
    read = read_matrix(matrix)
    signing = {"TRTCACHE_REMOTE": "s3://b/p?mode=write", "TRTCACHE_SIGNING_KEY": "/key/ci.secret", "TRTCACHE_DIR": "/c"}
    with pytest.raises(SettingsError, match="is in no volume of the pod"):
        emit("k8s", read, read.cells, environ=signing)
    matrix.write_text(text.replace(str(matrix.parent) + '"}]', '/key"}]'))
    read = read_matrix(matrix)
    container = json.loads(emit("k8s", read, read.cells, environ=signing))["spec"]["template"]["spec"]["containers"][0]
    assert [each["name"] for each in container["env"]] == ["TRTCACHE_REMOTE", "TRTCACHE_SIGNING_KEY"]


def _closed_port() -> int:
    """Return a port of this host that nothing listens at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_cells_of_another_image_are_left_to_it(run: Callable[..., Result], matrix: Path, file: Path) -> None:
    """Their versions are not those of this machine."""
    matrix.write_text(f'[[cells]]\nfile = "{file}"\nimage = ["registry/torch:2.12", "registry/torch:2.13"]\n')
    assert _states(run("warm", matrix, "--plan", "--json")) == ["unknown", "unknown"]
    done = run("warm", matrix)
    assert (done.code, done.out) == (0, "0 built, 0 hit, 0 failed\n")
    assert "not built here, 2 cells of other images" in done.err
    wrong = run("warm", matrix, "--emit", "sbatch")
    assert (wrong.code, "--image" in wrong.err) == (2, True)
    script = run("warm", matrix, "--emit", "sbatch", "--image", "registry/torch:2.12").out
    assert "srun --container-image=registry/torch:2.12 trtcache warm" in script


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cell", "9"], "there is no cell 9"),
        (["--cell", "x"], "neither a number nor auto"),
        (["--cell", "auto"], "none of these is set"),
        (["--only", "0-"], "is not a list of numbers"),
        (["--only", "7"], "there is no cell 7"),
        (["--plan", "--emit", "k8s"], "exclude each other"),
    ],
)
def test_wrong_usage(options: list[str], message: str, run: Callable[..., Result], matrix: Path) -> None:
    """One line, and exit code 2."""
    done = run("warm", matrix, *options)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert message in done.err


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_signal_ends_the_builds(
    number: signal.Signals, code: int, run: Callable[..., Result], matrix: Path, tmp_path: Path
) -> None:
    """Those that run, too: nothing goes on in the background, also if the command itself is killed."""
    slow = "import os, time\nfrom pathlib import Path\n"
    slow += f"Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\ntime.sleep(60)\n"
    (tmp_path / "slow.py").write_text(slow)
    matrix.write_text('[[cells]]\nfile = "slow:build"\n')
    command = [sys.executable, "-m", "trtcache_cli", "warm", str(matrix)]
    # The tests themselves may run under nohup, whose processes ignore this signal, and those that they start.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGHUP, before)
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, "Traceback" in err) == (code, "", False)
    if number == signal.SIGKILL:
        ends_s = time.monotonic() + 30
        while Path(f"/proc/{pid.read_text()}").exists():
            assert time.monotonic() < ends_s
            time.sleep(0.1)
    assert not Path(f"/proc/{pid.read_text()}").exists()
    assert run("ls", "--json").json["total"] == 0


def test_an_engine_that_was_not_stored_is_a_failure(matrix: Path) -> None:
    """A warmed cache has it; the reason is the warning of the process that built it."""
    cell = read_matrix(matrix).cells[0]
    built = json.dumps({"key": "ab", "outcome": "built", "path": None})
    log = "building m, unless it is cached\ntrtcache: WARNING: entry ab was built but not stored: No space left\n"
    outcome = outcome_of(cell, (0, built, log, 1.0))
    why = "built, and not stored: entry ab was built but not stored: No space left"
    assert (outcome.outcome, outcome.why) == ("failed", why)
    assert "disabled or read-only" in outcome_of(cell, (0, built, "", 1.0)).why
    assert outcome_of(cell, (0, built.replace("null", '"/x"'), log, 1.0)).outcome == "built"
    for nothing in ({"engines": []}, {"key": None, "outcome": "eager", "path": None}):
        in_torch = outcome_of(cell, (0, json.dumps(nothing), "", 1.0))
        assert (in_torch.outcome, in_torch.why) == ("failed", "nothing to store: it runs in torch")


def test_a_cell_that_a_scheduler_runs_fails_if_nothing_is_stored(
    run: Callable[..., Result], matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says so, which is all that a scheduler reads."""
    monkeypatch.setenv("TRTCACHE_READONLY", "1")
    done = run("warm", matrix, "--cell", "1", "--json")
    assert (done.code, done.json["outcome"], done.json["path"]) == (1, "built", None)
    assert "cell 1 zoo:affine: failed: built, and not stored" in done.err


def test_a_build_without_a_key_is_a_failure(matrix: Path) -> None:
    """Nothing is stored of it, and the next process builds again."""
    cell, built = read_matrix(matrix).cells[0], json.dumps({"key": None, "outcome": "built", "path": None})
    log = "trtcache: WARNING: m is not cached: an operator\n"
    outcome = outcome_of(cell, (0, built, log, 1.0))
    assert (outcome.outcome, outcome.why) == ("failed", "built, and not stored: m is not cached: an operator")


def test_a_plan_counts_equal_keys_once(matrix: Path) -> None:
    """Of cells with one key, one is built, and the others hit."""
    cells = read_matrix(matrix).cells
    known = [PlannedCell(cell, "build", key="ab", expected_s=3.0) for cell in cells[:2]]
    unknown = [PlannedCell(cell, "unknown", expected_s=2.0) for cell in cells[2:]]
    assert total_s([*known, *unknown]) == 7.0
    assert total_s([PlannedCell(cells[0], "hit", key="cd", expected_s=5.0)]) == 0.0


def test_a_killed_build_is_called_killed(matrix: Path) -> None:
    """The last line of its log, if there is one, is what it said before."""
    cell = read_matrix(matrix).cells[0]
    assert outcome_of(cell, (-9, "", "", 1.0)).why == "the process was killed by signal 9"
    assert outcome_of(cell, (-9, "", "building m\n", 1.0)).why == "the process was killed by signal 9: building m"
    assert outcome_of(cell, (1, "", "", 1.0)).why == "the process ended with 1"


def test_what_is_emitted_builds_where_the_command_would(run: Callable[..., Result], matrix: Path) -> None:
    """``--cache-dir`` and ``--require-remote`` are options of each cell, too."""
    (folder := matrix.with_name("a b")).mkdir()
    given = ("warm", matrix, "--only", "0-2", "--cache-dir", folder, "--emit")
    command = f"trtcache warm {matrix} --cache-dir '{folder}' --only 0-2 --cell"
    assert f"{command} auto" in run(*given, "sbatch").out.splitlines()
    line = run(*given, "parallel").out
    assert shlex.split(line)[-1] == f"{command} {{}}"
    job = json.loads(run(*given, "k8s").out)
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == [*shlex.split(command), "auto"]


def test_what_a_scheduler_would_misread_is_refused(run: Callable[..., Result], matrix: Path) -> None:
    """Braces in a path, which GNU parallel replaces, and resources of another type than Kubernetes has."""
    braced = matrix.rename(matrix.with_name("m{}.toml"))
    done = run("warm", braced, "--only", "0-2", "--emit", "parallel")
    assert (done.code, done.out, "GNU parallel replaces braces" in done.err) == (2, "", True)
    text = braced.read_text()
    for resource, message in (
        ('parallelism = "4"', "parallelism: expected a number"),
        ("image = 3", "expected a text"),
        ("env = 3", "env: expected tables with a name"),
        ("command = 3", "command: unknown; known: env, image, "),
    ):
        braced.write_text(text.replace('image = "registry/torch:2.13"', resource))
        done = run("warm", braced, "--only", "0-2", "--emit", "k8s")
        assert (done.code, done.out, message in done.err) == (2, "", True), done.err


def test_failures_are_printed_with_quiet(run: Callable[..., Result], matrix: Path) -> None:
    """Those of cells, and nothing else; a cell built in this process is quiet too."""
    done = run("warm", matrix, "-q", "--only", "3,3")
    assert (done.code, done.out) == (1, "0 built, 0 hit, 1 failed\n")
    assert done.err.startswith("cell 3 none.pt2: failed, 0 ms: ")
    assert run("warm", matrix, "-q", "--cell", "0").err == ""


def test_no_build_begins_after_a_stop(matrix: Path) -> None:
    """A cell that was waiting for its turn is not begun."""
    processes = Processes()
    processes.stop()
    with Board(1) as board:
        outcome = processes.run(read_matrix(matrix).cells[0], [], board)
    assert (outcome.outcome, outcome.why) == ("failed", "interrupted")


def test_what_else_a_build_prints_does_not_end_the_run(matrix: Path) -> None:
    """The result may be before the last line, and a process without one has failed."""
    cell = read_matrix(matrix).cells[0]
    result = '{"outcome": "hit", "key": "a", "path": "p"}'
    outcomes = [outcome_of(cell, (0, out, "", 1.0)).outcome for out in (f"{result}\nbye\nnull\n", "", "null\n[1]\n")]
    assert outcomes == ["hit", "failed", "failed"]


def test_a_build_that_takes_no_notice_of_an_interrupt_is_killed(
    matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As C code does: it ends some time after the interrupt."""
    (tmp_path / "deaf.py").write_text(
        "import signal, time\nfrom pathlib import Path\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"Path({str(tmp_path / 'began')!r}).touch()\ntime.sleep(60)\n"
    )
    monkeypatch.setattr("trtcache_cli.warm_run.GRACE_S", 0.2)
    processes, outcomes = Processes(), []
    cell = read_matrix(matrix).cells[0]

    def build() -> None:
        outcomes.append(processes.run(cell, ["deaf:build"], Board(1)))

    thread = threading.Thread(target=build)
    thread.start()
    while not (tmp_path / "began").exists():
        assert thread.is_alive()
        time.sleep(0.05)
    processes.stop()
    thread.join(30)
    assert "killed by signal 9" in outcomes[0].why
