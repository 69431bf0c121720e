"""Real mounts, which only root can make."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def mounted(place: Path, *arguments: str | Path) -> Iterator[Path]:
    """Mount something at ``place`` with these arguments of ``mount``, or skip the test and say so loudly."""
    place.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("NOTHING WAS MOUNTED: it needs root")
    done = subprocess.run(["mount", *arguments, place], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOTHING WAS MOUNTED: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@contextmanager
def read_only(directory: Path, place: Path) -> Iterator[Path]:
    """Bind-mount a directory read-only, as a container's read-only volume."""
    with mounted(place, "--bind", directory):
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        yield place
