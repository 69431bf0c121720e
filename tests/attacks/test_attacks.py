"""Every attack fails, and a reader without the defence shows that it would not."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from attacks import NAMES, exchanged_names
from attacks.stage import PULL, Stage, Succeeded, key_of, served
from tests.effort import tries
from trtcache.store.disk import DiskStore
from trtcache.store.entry import Entry
from trtcache.trust import Trust

FOLDER = Path(__file__).parents[2] / "attacks"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exchanged_names"])
def test_an_attack_fails(tmp_path: Path, name: str) -> None:
    """It is tried to its end, and gets nowhere."""
    assert import_module(f"attacks.{name}").attack(tmp_path)


@pytest.mark.torture
def test_names_that_are_exchanged_lead_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing outside of the store changes and nobody is kept waiting, whatever takes the place of a name."""
    said = exchanged_names.attack(tmp_path, tries(300, 10_000))
    with capsys.disabled():
        sys.stdout.write(f"\n{said}\n")


def test_every_attack_is_run() -> None:
    """Each file of the folder is one, but for those that all begin with; SECURITY.md names each."""
    found = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "__main__", "outside", "stage"}
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
