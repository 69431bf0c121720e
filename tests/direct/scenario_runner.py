"""Runs scenarios in processes: each state of each scenario in its own, forked from one that has imported torch."""

from __future__ import annotations

import gc
import importlib
import json
import os
import pickle
import runpy
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.direct.scenarios import Scenario

PHASES = ("before", "again", "after")
TAIL = """
if "args" not in globals():
    args = (torch.arange(12.0).reshape(3, 4),)
import tests.direct.scenario_runner as _runner
_runner.judge(model, args, globals().get("kwargs"), globals().get("dynamic_shapes"))
"""
HEAD = "import torch\ntorch.manual_seed(0)\n"


def judge(model: Any, args: tuple[Any, ...], kwargs: Any, dynamic_shapes: Any) -> None:
    """Compile with direct mode; if it hits, compile without in a copy of this process, and compare."""
    import torch

    import trtcache

    def described(leaf: Any) -> tuple[Any, ...]:
        if not isinstance(leaf, torch.Tensor):
            return "value", repr(leaf)
        wide = leaf.detach().to(torch.complex128 if leaf.dtype.is_complex else torch.float64)
        return str(leaf.dtype), tuple(leaf.shape), wide.resolve_conj().tolist()

    def answer(direct: str) -> tuple[str, list[Any], list[str]]:
        module = trtcache.compile(
            model, args, kwargs, dynamic_shapes=dynamic_shapes, backend="stored", name="Model", direct=direct
        )
        torch.manual_seed(0)
        with torch.no_grad():
            out = module(*args, **(kwargs or {}))
        plain = [described(leaf) for leaf in torch.utils._pytree.tree_leaves(out)]
        return module.report.direct, plain, [str(getattr(part, "key", "")) for part in module.report.partitions]

    ask, close = _fork_that_answers(lambda: answer("off"))
    try:
        direct, plain, keys = answer("on")
        result: dict[str, Any] = {"direct": direct, "out": repr(plain), "keys": keys, "wrong": False}
        if direct == "hit":
            state, off, off_keys = ask()
            if state == "error":
                result |= {"wrong": True, "off": str(off)[-600:]}
            elif repr(off) != repr(plain):
                result |= {"wrong": True, "off": repr(off)}
            elif keys != off_keys:
                result |= {"wrong": True, "off": f"same outputs, other keys {off_keys}"}
    finally:
        close()
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


def _fork_that_answers(answer: Callable[[], object]) -> tuple[Callable[[], Any], Callable[[], None]]:
    """Fork a process that waits, and return what asks it for an answer and what ends it."""
    ready_out, ready_in = os.pipe()
    done_out, done_in = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready_in)
        if os.read(ready_out, 1):  # nothing if the other end is closed
            try:
                payload = answer()
            except BaseException:  # noqa: BLE001  # whatever it is, the other process reports it
                payload = ("error", traceback.format_exc(), [])
            with os.fdopen(done_in, "wb") as file:
                file.write(pickle.dumps(payload))
        os._exit(0)
    os.close(done_in)

    def ask() -> Any:
        os.write(ready_in, b"g")
        with os.fdopen(done_out, "rb") as file:
            return pickle.loads(file.read())  # noqa: S301  # this process's own fork wrote it

    def close() -> None:
        os.close(ready_in)
        os.waitpid(child, 0)

    return ask, close


def _path(folder: Path, name: str) -> Path:
    if name.startswith("/"):
        return folder / name[1:]
    return folder / "pkg" / (name if "." in name else f"{name}.py")


def write_state(folder: Path, scenario: Scenario, phase: str) -> None:
    """Write the files of a state."""
    (folder / "pkg").mkdir(parents=True, exist_ok=True)
    if phase == "before" and "/pkg" not in scenario.files and scenario.init:
        (folder / "pkg" / "__init__.py").touch()
    files: Mapping[str, str | None] = {"before": scenario.files, "after": scenario.after}.get(phase, {})
    for name, text in files.items():
        path = _path(folder, name)
        if text is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    steps = {"before": scenario.setup, "again": "", "after": scenario.between}[phase]
    if steps:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import os, sys, pathlib, subprocess, shutil, time\nfolder = pathlib.Path('.').resolve()\n{steps}",
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )
        assert done.returncode == 0, done.stderr
    script = scenario.then if phase == "after" and scenario.then is not None else scenario.script
    (folder / "script.py").write_text(f"{HEAD}{script}{TAIL}")


def run_state(folder: Path, scenario: Scenario, phase: str) -> dict[str, Any]:
    """Run one state in its own process."""
    write_state(folder, scenario, phase)
    result = folder / f"result-{phase}.json"
    environ = {
        "TRTCACHE_DIR": str(folder / "cache"),
        "SCENARIO_RESULT": str(result),
        **scenario.env,
    }
    if phase == "after":
        environ |= scenario.env_after
    log = folder / f"log-{phase}.txt"
    argv = scenario.argv_after if phase == "after" and scenario.argv_after is not None else scenario.argv
    if argv:  # a process that is started anew
        with log.open("w") as file:
            subprocess.run(
                [os.environ.get("SCENARIO_PYTHON", sys.executable), *argv],
                cwd=folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=200,
                stdin=(folder / "script.py").open(),
                env={
                    **os.environ,
                    **environ,
                    "PYTHONPATH": f"{environ.get('PYTHONPATH', '')}:{folder}:{os.environ['PYTHONPATH']}",
                },
                check=False,
            )
    else:
        child = os.fork()
        if child == 0:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            signal.alarm(150)
            try:
                os.environ.update(environ)
                os.chdir(folder)
                sys.path.insert(0, str(folder))
                sys.argv = [str(folder / "script.py")]
                runpy.run_path(str(folder / "script.py"), run_name="__main__")
            except BaseException:  # noqa: BLE001  # it ends here, whatever it is
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
    if not result.exists():
        return {"direct": "crash", "wrong": False, "out": "", "keys": [], "log": log.read_text()[-1500:]}
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def warm() -> None:
    """Import what a compile imports."""
    import tempfile

    import torch

    import trtcache

    with tempfile.TemporaryDirectory() as folder:
        trtcache.compile(
            torch.nn.Linear(2, 2).eval(), (torch.rand(1, 2),), cache=folder, backend="stored", direct="off"
        )


def main() -> None:
    """Run phases of the named scenarios, ``SUITE/NAME``, and write a line of JSON for each."""
    from tests.keys.tracing import operators_listed_once  # not where a scenario's script imports this file

    base, phases, *names = sys.argv[1:]
    suites = {name.partition("/")[0] for name in names}
    scenarios = {
        f"{suite}/{name}": scenario
        for suite in sorted(suites)
        for name, scenario in importlib.import_module(f"tests.direct.{suite}").SCENARIOS.items()
    }
    with operators_listed_once():
        warm()
        gc.collect()
        gc.freeze()  # or each child copies the memory of all objects when it collects garbage
        for number, name in enumerate(names):
            _run_phases(Path(base) / f"s{number:04}", name, scenarios[name], phases.split(","))


def _run_phases(folder: Path, name: str, scenario: Scenario, phases: list[str]) -> None:
    suite, _, own = name.partition("/")
    for phase in phases:
        if phase == "again" and not scenario.again:
            continue
        try:
            result = run_state(folder, scenario, phase)
        except Exception:  # noqa: BLE001  # the next scenario goes on
            log = traceback.format_exc()[-1500:]
            result = {"direct": "crash", "wrong": False, "out": "", "keys": [], "log": log}
        said = {"suite": suite, "name": own, "phase": phase, "folder": str(folder), **result}
        print(json.dumps(said), flush=True)  # noqa: T201  # its answer


def site(folder: Path) -> Path:
    """Install the backend as another distribution would, by an entry point."""
    from tests.direct.stored import install_stored

    return install_stored(folder / "site")


if __name__ == "__main__":
    main()
