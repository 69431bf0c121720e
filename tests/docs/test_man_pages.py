"""The manual pages: one for each command, well formed, and with the text of its help."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trtcache_cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, written by the script that the build of a wheel calls."""
    path = tmp_path_factory.mktemp("pages") / "man1"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "cli", ROOT / "migrations")))}
    script = ROOT / "docs" / "man_pages.py"
    subprocess.run([sys.executable, str(script), str(path)], env=environ | {"SOURCE_DATE_EPOCH": "0"}, check=True)
    return path


def test_each_command_has_one(folder: Path) -> None:
    """Also the commands of a command."""
    names = {path.name for path in folder.iterdir()}
    assert {"trtcache.1", *(f"trtcache-{name}.1" for name in COMMANDS)} <= names
    assert {"trtcache-trust-add.1", "trtcache-config-set.1"} <= names


def test_examples_keep_their_lines(folder: Path) -> None:
    """And exit codes, and the page has its date from SOURCE_DATE_EPOCH."""
    stats = (folder / "trtcache-stats.1").read_text(encoding="utf-8")
    assert stats.startswith('.TH "TRTCACHE-STATS" "1" "1970-01-01"')
    assert ".SH EXAMPLES\n.nf\ntrtcache stats\ntrtcache stats \\-\\-since 7d\n" in stats
    assert "\n.SH EXIT CODES\n.nf\n0    success\n" in (folder / "trtcache.1").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command", [["mandoc", "-Tlint", "-Wwarning"], ["groff", "-man", "-ww", "-z", "-Tutf8"]], ids=["mandoc", "groff"]
)
def test_programs_that_show_them_print_no_warning(folder: Path, command: list[str]) -> None:
    """Where they are installed."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    for path in sorted(folder.iterdir()):
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), path.name
