"""Every attack fails, and a reader without the defence shows that it would not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from attacks import NAMES, exchanged_names
from attacks.stage import PULL, Stage, Succeeded, key_of, served
from tests.effort import tries
from trtcache.config.signing_keys import Trust
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "attacks"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exchanged_names"])
def test_an_attack_fails(tmp_path: Path, name: str) -> None:
    """It is tried to its end, and gets nowhere."""
    assert import_module(f"attacks.{name}").attack(tmp_path)


def test_a_swap_before_any_call_of_the_c_library_gets_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not before one of Python's alone: whatever a look-up opens, looks at, reads or closes, by whatever library."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("NOTHING WAS SWAPPED: there is no C compiler for the shim")
    shim = tmp_path / "watch.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", shim, HERE / "watch.c", "-ldl"], check=True)
    (tmp_path / "stage").mkdir()
    command = [sys.executable, "-m", "tests.attacks.watched", shim, tmp_path / "stage"]
    environ = os.environ | {"LD_PRELOAD": str(shim)}
    done = subprocess.run(command, env=environ, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        sys.stdout.write(f"\n{done.stdout}\n")


@pytest.mark.torture
def test_names_that_are_exchanged_lead_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing outside of the store changes and nobody is kept waiting, whatever takes the place of a name."""
    said = exchanged_names.attack(tmp_path, tries(300, 10_000))
    with capsys.disabled():
        sys.stdout.write(f"\n{said}\n")


def test_every_attack_is_run() -> None:
    """Each file of the folder is one, but for those that all begin with; SECURITY.md names each."""
    found = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "__main__", "outside", "stage", "victim"}
    assert found == set(NAMES)
    told = (FOLDER.parent / "SECURITY.md").read_text()
    assert [name for name in NAMES if f"attacks/{name}.py" not in told] == []


def test_without_signatures_a_low_trust_writer_is_believed(tmp_path: Path) -> None:
    """The same poisoned entry is served to who has said signatures = off: it is they that keep it out."""
    stage = Stage.set(tmp_path)
    stage.put(stage.open(PULL, PULL), 1, b"evil")
    assert served(stage.main(), 1) is None
    trusting = DiskStore.open(stage.root, trust=Trust(required=False))
    assert isinstance(trusting.get(key_of(1)), Entry)
    with pytest.raises(Succeeded):
        served(trusting, 1)
