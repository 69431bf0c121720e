"""A process that is killed before any call that changes the store leaves a store without a fault."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
SOUND = ["first put", "second put", "replace", "several members", "put that prunes", "pin", "damaged entry"]
SABOTAGE = "written in place"


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, tuple[int, list[str]]]]:
    """The number of points and the faults of each scenario, all explored once, by two processes."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("NO CRASH POINT WAS TRIED: there is no C compiler for the shim")
    # In memory where there is one: a kill, unlike a power cut, loses nothing that was written but not flushed.
    memory = Path("/dev/shm")  # noqa: S108  # a directory of our own is made in it
    directory = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield explore(compiler, directory)
    finally:
        shutil.rmtree(directory)


def explore(compiler: str, directory: Path) -> dict[str, tuple[int, list[str]]]:
    """Explore all scenarios by two processes."""
    shim = directory / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", shim, HERE / "shim.c", "-ldl"], check=True)
    processes = []
    for number, names in enumerate((["first put", "pin", SABOTAGE], [name for name in SOUND[1:] if name != "pin"])):
        own = directory / str(number)
        own.mkdir()
        command = [sys.executable, HERE / "fork_server.py", shim, own, *names]
        environ = os.environ | {"LD_PRELOAD": str(shim)}
        processes.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE))
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return {name: tuple(result) for output in outputs for name, result in json.loads(output).items()}


@pytest.mark.parametrize("name", SOUND)
def test_a_kill_before_any_call_leaves_no_fault(results: dict[str, tuple[int, list[str]]], name: str) -> None:
    """The store opens, has all it acknowledged, serves nothing wrong, lists itself, and takes the next put."""
    points, wrong = results[name]
    assert wrong == []
    assert points >= (3 if name == "pin" else 20)


def test_all_calls_were_tried(results: dict[str, tuple[int, list[str]]], capsys: pytest.CaptureFixture[str]) -> None:
    """Every mutating call of every scenario was tried: 200 points or more."""
    total = sum(results[name][0] for name in SOUND)
    with capsys.disabled():
        shown = ", ".join(f"{name} {results[name][0]}" for name in SOUND)
        sys.stdout.write(f"\nkilled before each of {total} calls ({shown}): no fault\n")
    assert total >= 200


def test_a_store_that_writes_in_place_is_caught(results: dict[str, tuple[int, list[str]]]) -> None:
    """The same search finds the fault of a writer without temporary files."""
    _points, wrong = results[SABOTAGE]
    assert any("corrupt" in one for one in wrong)
