"""A second process that builds: it holds the lock of a key until it is stopped or killed.

Run as ``python -m tests.holding ROOT DIGEST``.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.store.disk import DiskStore
from trtcache.store.single_flight import BuildProcess

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def holder(root: Path, digest: str) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that builds an entry; closing its input ends the build, without a result."""
    command = [sys.executable, "-m", "tests.holding", str(root), digest]
    cwd = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


def main(root: Path, digest: str) -> None:
    """Hold the lock."""
    with DiskStore.open(root).flight(digest, who=BuildProcess.here(kind="test", name="bert")):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
