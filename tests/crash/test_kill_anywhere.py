"""A process that is killed before any call that changes the store, or whose calls go wrong, leaves a sound store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pytest

from tests.effort import TORTURE, tries

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torture

HERE = Path(__file__).parent
PUTS = ["first put", "second put", "replace", "several members", "put that prunes", "damaged entry"]
OTHERS = ["copy up", "sync", "shared", "prune", "pin", "unpin", "rebuild index", "migrate index", "count"]
KILLED = [*PUTS, "hit", *OTHERS]
SABOTAGE = "written in place"

# The errnos of property P08: what a full, slow, shared, read-only, locked or worn-out file system says.
ERRNOS = (
    *("EIO", "ENOSPC", "EDQUOT", "EACCES", "EPERM", "EROFS", "EMFILE"),
    *("ENFILE", "ENOMEM", "EINTR", "ESTALE", "ENOLCK", "EBUSY", "ETXTBSY"),
)
ONE_FAILS = [f"one {name}" for name in (ERRNOS if TORTURE else ("ENOSPC",))]
FAILURES = [*ONE_FAILS, "all EIO"]

# Writes that write less and say so, or do not say so; names that are changed and reported not to be, as by NFS.
WRONG = ["one short", "one lying", "one lost", *(["all short", "all lying", "all lost"] if TORTURE else [])]
WRONGED = [*PUTS, *OTHERS]


class Explored(NamedTuple):
    """What came of one scenario in one mode."""

    calls: int
    tried: int
    wrong: list[str]


Results: TypeAlias = "dict[tuple[str, str], Explored]"
"""By mode and scenario."""


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
        failing = WRONGED if TORTURE else PUTS
        rounds = [("kill", KILLED, tries(12, 0)), ("kill", [SABOTAGE], 0)]
        rounds += [(mode, failing, tries(6, 0)) for mode in FAILURES] + [(mode, WRONGED, tries(3, 0)) for mode in WRONG]
        with ThreadPoolExecutor(os.cpu_count()) as servers:
            found = servers.map(lambda one: explore(shim, directory, *one), rounds)
            yield {key: value for one in found for key, value in one.items()}
    finally:
        shutil.rmtree(directory)


def explore(shim: Path, directory: Path, mode: str, names: list[str], most: int) -> Results:
    """Run the fork server for one mode and return what it found."""
    own = directory / f"{mode} {names[0]}".replace(" ", "-")
    own.mkdir()
    command = [sys.executable, "-m", "tests.crash.fork_server", shim, own, str(most), mode, *names]
    environ = os.environ | {"LD_PRELOAD": str(shim), "XDG_CACHE_HOME": str(own / "caches")}
    done = subprocess.run(command, env=environ, cwd=HERE.parents[1], stdout=subprocess.PIPE, check=True)
    return {(mode, name): Explored(*found) for name, found in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", KILLED)
def test_a_kill_before_any_call_leaves_no_fault(results: Results, name: str) -> None:
    """The store opens, has all it acknowledged, serves nothing wrong, lists itself, and takes the next put."""
    explored = results["kill", name]
    assert explored.wrong == []
    assert explored.calls >= (20 if name in PUTS else 1)


@pytest.mark.parametrize("mode", FAILURES)
@pytest.mark.parametrize("name", WRONGED if TORTURE else PUTS)
def test_a_call_that_fails_costs_the_entry_at_most(results: Results, name: str, mode: str) -> None:
    """With any call failing, or all from one on, the build is returned and the store is without a fault."""
    explored = results[mode, name]
    assert explored.wrong == []
    assert explored.calls >= (20 if name in PUTS else 1)


@pytest.mark.parametrize("mode", WRONG)
def test_a_call_that_does_less_or_more_than_it_says_makes_no_wrong_entry(results: Results, mode: str) -> None:
    """Nothing is acknowledged that is not there and right, and the store heals by itself."""
    assert {name: results[mode, name].wrong for name in WRONGED} == {name: [] for name in WRONGED}


def test_the_calls_that_were_tried_are_told(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    """There are hundreds of calls; how many of them were tried is printed."""
    killed = {name: results["kill", name] for name in KILLED}
    failed = [explored for (mode, _), explored in results.items() if mode in FAILURES]
    wrong = [explored for (mode, _), explored in results.items() if mode in WRONG]
    with capsys.disabled():
        shown = ", ".join(f"{name} {one.tried}/{one.calls}" for name, one in killed.items())
        sys.stdout.write(f"\nkilled before {sum(one.tried for one in killed.values())} calls ({shown}): no fault")
        sys.stdout.write(f"; {sum(one.tried for one in failed)} of {sum(one.calls for one in failed)} failed")
        sys.stdout.write(f"; {sum(one.tried for one in wrong)} of {sum(one.calls for one in wrong)} were short, ")
        sys.stdout.write("lying or lost\n")
    assert sum(one.calls for one in killed.values()) >= 300
    assert sum(one.tried for one in killed.values()) >= 100
    assert all(one.tried == one.calls for one in killed.values()) or not TORTURE


def test_a_store_that_writes_in_place_is_caught(results: Results) -> None:
    """The same search finds the fault of a writer without temporary files."""
    assert any("corrupt" in one for one in results["kill", SABOTAGE].wrong)
