"""docs/layers.md: what it shows of commands is what they print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import torch

from tests.documents import ROOT, shape
from tests.models import Affine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from .conftest import Result

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_each_command_prints_what_is_shown(
    run: Callable[..., Result], interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image's layer is filled, a second store over it has a hit, and the directory is looked at."""
    model = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Affine(), (torch.ones(3, 4),)), model)
    here = {"/opt/engines": f"{tmp_path}/lower", "/var/cache": f"{tmp_path}/var"}
    here["model.pt2"] = f"{model} --backend {interpreter}"
    monkeypatch.delenv("TRTCACHE_DIR")
    for block in _CONSOLE.findall((ROOT / "docs" / "layers.md").read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip().splitlines()
            printed = _done(command, here, run, monkeypatch)
            there = {line: place for place, line in here.items()}
            lines = [_shape(line, there) for line in printed.splitlines()]
            missing = [line for line in shown if line != "..." and _shape(line, there) not in lines]
            assert missing == [], (command, printed)
            assert "..." in shown or len(lines) == len(shown), (command, printed)


def _done(command: str, here: dict[str, str], run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> str:
    for place, replaced in here.items():
        command = command.replace(place, replaced)
    words = shlex.split(command)
    with monkeypatch.context() as context:
        while "=" in words[0] or words[0] == "export":
            name, _, value = words.pop(0).partition("=")
            if name == "export":
                monkeypatch.setenv(*words.pop(0).split("=", 1))
                return ""
            context.delenv("TRTCACHE_PATH", raising=False)
            context.setenv(name, value)
        if words[0] != "trtcache":
            subprocess.run(words, check=True, env=os.environ)
            return ""
        done = run(*words[1:])
        assert done.code == 0, (command, done.err)
        return done.err + done.out


def _shape(line: str, there: dict[str, str]) -> str:
    for replaced, place in there.items():
        line = line.replace(replaced, place)
    return shape(" ".join(line.split()))
