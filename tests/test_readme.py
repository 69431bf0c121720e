"""The README is correct: its Python runs, and its statements about variables and files hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import environ_untraced
from tests.documents import python_blocks
from trtcache.config.environment import VARIABLES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = python_blocks(README)


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    """All blocks run in one process, in their order, with nothing but what they say."""
    (tmp_path / "kernel.c").write_text("int twice(int x) { return 2 * x; }\n")
    environment = environ_untraced() | {"TRTCACHE_DIR": str(tmp_path / "cache"), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", "\n".join(BLOCKS)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "TransformerEncoderLayer: aot_inductor for cpu" in done.stdout
    assert (tmp_path / "kernel-cached.so").read_bytes() == (tmp_path / "kernel.so").read_bytes()


def test_every_block_of_python_is_found() -> None:
    """No block is written in a way that the test above would pass over."""
    assert len(BLOCKS) == README.count("```python") > 0


def test_every_variable_is_in_the_table() -> None:
    """The table has each variable with the meaning that ``trtcache config`` prints."""
    rows = dict(re.findall(r"^\| `(TRTCACHE_\w+)` \| (.*) \|$", README, re.MULTILINE))
    assert rows == VARIABLES


def test_every_link_leads_somewhere() -> None:
    """Each link to a file of this project names one that is there."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
