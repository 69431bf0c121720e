"""docs/lowering.md's pass of another distribution is the example, and is shown as the document shows it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from tests.documents import ROOT, console, python_blocks

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / "docs" / "lowering.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "pass_plugin"


def test_the_pass_of_the_document_is_the_example() -> None:
    """Its blocks are the example's files."""
    assert python_blocks(TEXT)[-1] == (EXAMPLE / "trtcache_fast_gelu.py").read_text()
    assert re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL) == [
        (EXAMPLE / "pyproject.toml").read_text()
    ]


@pytest.mark.slow
def test_the_installed_pass_is_shown(tmp_path: Path, python: str) -> None:
    """Installed as pip does it, the pass changes a program, and the diff is the document's."""
    package = shutil.copytree(EXAMPLE, tmp_path / "pass_plugin")  # pip writes into it
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *options, str(package)], check=True)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).eval()
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(model, (torch.randn(4, 64),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "scorer.pt2")
    command = "trtcache lower scorer.pt2 --show fast_gelu"
    (lines,) = console("docs/lowering.md")[command]
    done = subprocess.run(
        [python, "-m", "trtcache_cli", *command.split()[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}:{ROOT / 'cli'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = [re.sub(r"\bs\d+\b", "s31", line) for line in done.stdout.splitlines()]
    changes = [line for line in printed if line.startswith(("+", "-"))]
    assert changes == [line for line in lines if line.startswith(("+", "-"))]
    assert re.search(r"^fast_gelu@1: [\d.]+ m?s$", done.stdout + done.stderr, re.MULTILINE)
