"""What tests of background builds share: a backend that builds in other processes, and a folder of temporary files."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def portable(interpreter: str) -> str:
    """Install the backend whose artifacts run in every process."""
    assert interpreter
    return "portable"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder where every temporary file of this test is."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))  # else it is below TMPDIR
    return folder


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[int]]]:
    """Return the process, threads and niceness of each build so far."""
    log = tmp_path / "builds.txt"
    monkeypatch.setenv("PORTABLE_LOG", str(log))
    return lambda: (
        [[int(word) for word in line.split()] for line in log.read_text().splitlines()] if log.exists() else []
    )


def workers(temporary: Path) -> list[str]:
    """Return the processes that have this folder of temporary files."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            environ, command = (path / "environ").read_bytes(), (path / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if path.name != str(os.getpid()) and f"TMPDIR={temporary}".encode() in environ and command:
            found.append(f"{path.name} {command.decode().replace(chr(0), ' ')}")
    return found


def until(condition: Callable[[], object], *, timeout_s: float = 90.0) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: it did not come true.
    """
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError
        time.sleep(0.05)


def assert_nothing_left(temporary: Path) -> None:
    """Assert that no process and no temporary file is left, after the fraction of a second that ending takes."""
    try:
        until(lambda: not workers(temporary) and not list(temporary.iterdir()), timeout_s=10.0)
    except TimeoutError:
        tree = subprocess.run(["find", str(temporary)], capture_output=True, text=True, check=False).stdout
        raise AssertionError(f"{workers(temporary)} {tree}") from None
