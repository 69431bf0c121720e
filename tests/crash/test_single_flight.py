"""Many processes with many threads want one entry that nobody has: one builds it, even if the first one dies."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.effort import tries

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torture

PROJECT = Path(__file__).parents[2]
PROCESSES, THREADS = tries(6, 32), tries(4, 8)
TOO_LONG_S = 60.0


class Crowd:
    """Processes that are all asked at once."""

    def __init__(self, root: Path) -> None:
        """Start them."""
        self._root = root
        self._members = [self._start() for _ in range(PROCESSES)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.crash.member", self._root, str(THREADS)]
        environ = {name: text for name, text in os.environ.items() if not name.startswith(("TRTCACHE_", "COVERAGE_"))}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environ, cwd=PROJECT, stdin=pipe, stdout=pipe, bufsize=0)

    def round(self, name: str) -> list[str]:
        """Have all ask for the entry of a round, and return what each says; a process that died says nothing."""
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(f"{name}\n".encode())
        said = [self._said(member) for member in self._members]
        for place, member in enumerate(self._members):
            if member.poll() is not None:
                member.communicate()
                self._members[place] = self._start()
        return [one for one in said if one]

    @staticmethod
    def _said(member: subprocess.Popen[bytes]) -> str:
        assert member.stdout is not None
        ready, _, _ = select.select([member.stdout], [], [], TOO_LONG_S)
        if not ready:
            return f"no answer in {TOO_LONG_S:.0f} s"
        line = member.stdout.readline().decode().strip()
        if not line:
            assert member.wait() == -signal.SIGKILL
        return line

    def builds(self, name: str) -> int:
        """Return how often a build of a round's entry was begun."""
        return self._root.with_name(f"builds-{name}").read_text().count("begun")

    def end(self) -> None:
        """Let them end."""
        for member in self._members:
            member.communicate()


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    """Processes with a store in memory where there is such."""
    memory = Path("/dev/shm")  # noqa: S108  # a directory of our own is made in it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        made = Crowd(Path(directory) / "cache")
        try:
            yield made
        finally:
            made.end()


def test_one_of_all_builds(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """In each round there is one build, and every thread of every process has its bytes."""
    rounds, start = tries(6, 200), time.monotonic()
    for number in range(rounds):
        assert crowd.round(f"{number}") == ["right"] * PROCESSES
        assert crowd.builds(f"{number}") == 1
    with capsys.disabled():
        took_s = time.monotonic() - start
        sys.stdout.write(
            f"\n{rounds} rounds, {PROCESSES} processes x {THREADS} threads: a build each, {took_s:.0f} s\n"
        )


def test_one_succeeds_a_builder_that_dies(crowd: Crowd) -> None:
    """A builder that is killed half way has one successor, and all others get what that one builds."""
    for number in range(tries(3, 50)):
        name = f"{number}-killed"
        assert crowd.round(name) == ["right"] * (PROCESSES - 1)
        assert crowd.builds(name) == 2
