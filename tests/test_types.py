"""The types of public functions, as type checkers give them to callers."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_CHECKERS = {"mypy": (), "pyright": ("--pythonpath", sys.executable)}


@pytest.mark.slow
@pytest.mark.parametrize("checker", _CHECKERS)
def test_calls_keep_the_return_type_of_the_model(checker: str) -> None:
    """Each ``assert_type`` holds, but one: its ``type: ignore`` would be an error if mypy did not find it."""
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    command = [sys.executable, "-m", checker, *_CHECKERS[checker], "tests/typed_calls.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
