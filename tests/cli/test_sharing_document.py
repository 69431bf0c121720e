"""docs/sharing.md takes a farm from nothing to a signed shared store, and each of its commands does what it shows."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

import pytest
import torch

from tests.documents import ROOT, shape
from tests.models import Affine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Result

X = torch.randn(3, 4)
_SECTION = re.compile(r"^## (.*?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MAIN = re.compile(r"ci-main:[0-9a-f]{64}")


def steps() -> Iterator[tuple[str, str, list[str]]]:
    """Yield who types each command, the command, and what it is shown to print."""
    for who, text in _SECTION.findall((ROOT / "docs" / "sharing.md").read_text()):
        for block in _CONSOLE.findall(text):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *lines = part.rstrip().splitlines()
                yield who, command, lines


@pytest.fixture
def farm(tmp_path: Path, interpreter: str) -> Callable[[str], list[str]]:
    """Turn a command of the document into one of this machine, with a directory, a group and a model that are here."""
    model = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Affine(), (X,)), model)
    here = {
        "/srv/engines": str(tmp_path / "engines"),
        "builders": str(os.getgid()),
        "model.pt2": f"{model} --backend {interpreter}",
    }

    def translated(command: str) -> list[str]:
        for there, replaced in here.items():
            command = command.replace(there, replaced)
        return shlex.split(command)

    return translated


def test_ten_commands_make_a_signed_shared_store(
    run: Callable[..., Result], farm: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user has a separate home; every documented line is printed, and no command fails."""
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "engines"))
    public = ""
    done = list(steps())
    assert len(done) == 10
    for who, command, shown in done:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / who / ".config"))
        words = farm(_MAIN.sub(public, command))
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            monkeypatch.setenv(name, value)
        result = run(*words[1:])
        assert result.code == 0, (command, result.err)
        public = result.out.strip() if command == "trtcache trust keygen ci-main" else public
        printed = [_line(line, tmp_path, who) for line in (result.err + result.out).splitlines()]
        told = [_shape(line) for line in shown if line != "..."]
        assert [one for one in told if one not in map(_shape, printed)] == [], (command, printed)
        assert "..." in shown or len(printed) == len(shown), command


def _line(line: str, tmp_path: Path, who: str) -> str:
    line = line.replace(str(tmp_path / who), "~").replace(str(tmp_path / "engines"), "/srv/engines")
    return line.replace("\t", " ")


def _shape(line: str) -> str:
    return shape(" ".join(line.split()))
