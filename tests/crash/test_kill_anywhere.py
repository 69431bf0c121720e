"""A process that is killed before any call that changes the store, or whose calls fail, leaves a sound store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PUTS = ["first put", "second put", "replace", "several members", "put that prunes", "damaged entry"]
KILLED = [*PUTS, "pin"]
SABOTAGE = "written in place"

Results: TypeAlias = "dict[tuple[str, str], tuple[int, list[str]]]"
"""By mode and scenario: the number of calls that were tried, and what was wrong."""


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    """All scenarios in all modes, explored once."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("NO CRASH POINT WAS TRIED: there is no C compiler for the shim")
    # In memory where there is one: a kill, unlike a power cut, loses nothing that was written but not flushed.
    memory = Path("/dev/shm")  # noqa: S108  # a directory of our own is made in it
    directory = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        shim = directory / "shim.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", shim, HERE / "shim.c", "-ldl"], check=True)
        yield explore(shim, directory)
    finally:
        shutil.rmtree(directory)


def explore(shim: Path, directory: Path) -> Results:
    """Run a fork server for each mode and collect what they found."""
    modes = {"kill": [*KILLED, SABOTAGE], "one fails": PUTS, "all fail": PUTS}
    servers = {}
    for mode, names in modes.items():
        own = directory / mode.replace(" ", "-")
        own.mkdir()
        command = [sys.executable, HERE / "fork_server.py", shim, own, mode, *names]
        environ = os.environ | {"LD_PRELOAD": str(shim)}
        servers[mode] = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE)
    outputs = {mode: server.communicate(timeout=300)[0] for mode, server in servers.items()}
    assert [server.returncode for server in servers.values()] == [0, 0, 0]
    return {(mode, name): tuple(found) for mode in modes for name, found in json.loads(outputs[mode]).items()}


@pytest.mark.parametrize("name", KILLED)
def test_a_kill_before_any_call_leaves_no_fault(results: Results, name: str) -> None:
    """The store opens, has all it acknowledged, serves nothing wrong, lists itself, and takes the next put."""
    calls, wrong = results["kill", name]
    assert wrong == []
    assert calls >= (3 if name == "pin" else 20)


@pytest.mark.parametrize("mode", ["one fails", "all fail"])
@pytest.mark.parametrize("name", PUTS)
def test_a_call_that_fails_costs_the_entry_at_most(results: Results, name: str, mode: str) -> None:
    """With any call on a full disk, or all from one on failing, the build is returned and the store without a fault."""
    calls, wrong = results[mode, name]
    assert wrong == []
    assert calls >= 20


def test_all_calls_were_tried(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    """Every mutating call of every scenario was tried: 200 points or more."""
    killed = {name: results["kill", name][0] for name in KILLED}
    failed = sum(results[mode, name][0] for mode in ("one fails", "all fail") for name in PUTS)
    with capsys.disabled():
        shown = ", ".join(f"{name} {calls}" for name, calls in killed.items())
        sys.stdout.write(f"\nkilled before each of {sum(killed.values())} calls ({shown}): no fault; {failed} failed\n")
    assert sum(killed.values()) >= 200


def test_a_store_that_writes_in_place_is_caught(results: Results) -> None:
    """The same search finds the fault of a writer without temporary files."""
    _calls, wrong = results["kill", SABOTAGE]
    assert any("corrupt" in one for one in wrong)
