"""docs/backends.md is true: its package is the example's, and its commands build and hit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.documents import ROOT, console, python_blocks, shape

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "backend_onnxruntime"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package installed in ``site``, as pip installs it, and the document's program."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("document")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder / "site")]
    package = shutil.copytree(EXAMPLE, folder / "backend_onnxruntime")  # pip writes into it
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *options, str(package)], check=True)
    (folder / "save.py").write_text(python_blocks(TEXT)[3])
    _run(folder, sys.executable, "-W", "ignore", "save.py")
    return folder


@pytest.mark.slow
def test_the_tests_of_the_example_pass(folder: Path, python: str) -> None:
    """The contracts hold for the installed package, run as its author does, but for torch's quicker exports."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.quicker_torch"]
    printed = _run(folder, python, "-m", "pytest", *options, str(folder / "backend_onnxruntime"))
    assert " passed" in printed
    assert "failed" not in printed


def _run(folder: Path, *command: str) -> str:
    places = {"TRTCACHE_DIR": str(folder / "cache"), "PYTHONPATH": f"{folder / 'site'}:{ROOT}:{ROOT / 'cli'}"}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **places, "COLUMNS": "200"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_of_the_document_is_the_example() -> None:
    """Its blocks are the example's files, in order."""
    code = "\n\n\n".join(block.strip() for block in python_blocks(TEXT)[:3])
    assert code.strip() == (EXAMPLE / "trtcache_onnxruntime.py").read_text().strip()
    (project,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert project == (EXAMPLE / "pyproject.toml").read_text()


@pytest.mark.slow
def test_the_commands_of_the_document_print_what_it_shows(folder: Path, python: str) -> None:
    """The installed backend builds, hits in another process, and is listed."""
    shown = console("docs/backends.md")
    for command, blocks in shown.items():
        if command.startswith("pip "):
            continue
        for lines in blocks:
            printed = _run(folder, python, "-m", "trtcache_cli", *command.split()[1:]).splitlines()
            rows = [line.replace("~/.cache/trtcache", str(folder / "cache")) for line in lines]
            skipped = 1 if command.startswith("trtcache ls") else 0  # no header outside of a terminal
            assert len(printed) == len(rows) - skipped
            assert not skipped or "\tonnxruntime\tscorer\t" in printed[0]
            if not skipped:
                assert [shape(" ".join(line.split())) for line in printed] == [
                    shape(" ".join(row.split())) for row in rows
                ]
