"""The line that ``compile`` shows on a terminal while it builds, on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.pseudo_terminal import read_and_close
from trtcache.cache import Cache
from trtcache.compiler.progress_line import last_build_s

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import time
from trtcache.cache import Cache
from trtcache.compiler.progress_line import show_progress_line
with show_progress_line(Cache(), kind="aot_inductor", name="tiny", device="cpu"):
    time.sleep(0.6)
"""


def run_on_terminal(cache: Path, **more: str) -> str:
    """Run the program with standard error on a pseudo-terminal, and return what that shows."""
    controller, terminal = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("TRTCACHE_")}
    environ |= {"TRTCACHE_DIR": str(cache), "COLUMNS": "100", "PYTHONWARNINGS": "ignore", **more}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal, env=environ) as child:
        os.close(terminal)
        shown = read_and_close(controller)
    assert child.returncode == 0, shown
    return shown


def test_a_build_is_one_line_that_is_gone_at_the_end(tmp_path: Path) -> None:
    """The first build has no estimate; the next is compared with a stored build of the same name."""
    shown = run_on_terminal(tmp_path)
    assert shown.startswith("\r\x1b[Kbuilding tiny for cpu, 0 s; cached from then on\r\x1b[K")
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown
    cache = Cache(tmp_path)
    cache.get_or_build({"n": 1}, lambda: (time.sleep(0.3), b"1")[1], kind="aot_inductor", name="tiny")
    took_s = last_build_s(cache, "aot_inductor", "tiny")
    assert took_s is not None
    assert f"building tiny for cpu, 0 s of about {took_s:.0f} s; cached" in run_on_terminal(tmp_path)


@pytest.mark.parametrize("variable", ["CI", "TRTCACHE_QUIET"])
def test_it_is_silent_in_ci_and_on_request(tmp_path: Path, variable: str) -> None:
    """Either variable turns the line off."""
    assert run_on_terminal(tmp_path, **{variable: "1"}) == ""


def test_there_is_no_estimate_without_a_build(tmp_path: Path) -> None:
    """An empty cache, and one with a build of another name."""
    cache = Cache(tmp_path)
    assert last_build_s(cache, "aot_inductor", "tiny") is None
    cache.get_or_build({"n": 1}, lambda: b"1", kind="aot_inductor", name="other")
    assert last_build_s(cache, "aot_inductor", "tiny") is None
