"""The README, the overview and the table of variables: their Python runs, and their statements hold."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import environ_untraced
from tests.documents import python_blocks
from trtcache.config.environment import VARIABLES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
OVERVIEW = (ROOT / "docs" / "overview.md").read_text()
BLOCKS = python_blocks(README)


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path, python: str) -> None:
    """All blocks run in their order in an empty folder, and so do the overview's, from the same cache."""
    folders = [tmp_path / "readme", tmp_path / "overview"]
    for folder, blocks in zip(folders, (BLOCKS, python_blocks(OVERVIEW)), strict=True):
        folder.mkdir()
        environment = environ_untraced() | {"TRTCACHE_DIR": str(tmp_path / "cache"), "PYTHONWARNINGS": "ignore"}
        command = [python, "-c", "\n".join(blocks)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert folder == folders[1] or "TransformerEncoderLayer: aot_inductor for cpu" in done.stdout
    assert (folders[0] / "kernel-cached.so").read_bytes() == (folders[0] / "kernel.so").read_bytes()


def test_every_block_of_python_is_found() -> None:
    """No block is written in a way that the test above would pass over."""
    assert len(BLOCKS) == README.count("```python") > 0
    assert len(python_blocks(OVERVIEW)) == OVERVIEW.count("```python") > 0


def test_the_readme_is_short() -> None:
    """At most 150 lines: what is longer is a page of the documentation."""
    assert len(README.splitlines()) <= 150


def test_every_variable_is_in_the_table() -> None:
    """The table has each variable with the meaning that ``trtcache config`` prints."""
    table = (ROOT / "docs" / "environment.md").read_text()
    rows = dict(re.findall(r"^\| `(TRTCACHE_\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert rows == VARIABLES


def test_every_link_leads_somewhere() -> None:
    """Each link to a file of this project names one that is there."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
