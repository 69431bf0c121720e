"""The command line run in this process, and as a program with or without a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.pseudo_terminal import read_and_close
from trtcache.digests import CacheKey
from trtcache.store.disk import DiskStore
from trtcache_cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What ``--json`` printed."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The tab-separated lines."""
        return [line.split("\t") for line in self.out.splitlines()]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory that the environment names; no other variable of ours is set."""
    for name in [name for name in os.environ if name.startswith("TRTCACHE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(root: Path) -> DiskStore:
    """An empty store there."""
    return DiskStore.open(root)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a small model, which takes three rows of four."""
    import torch  # most commands need none

    from tests.models import Affine

    path = tmp_path / "affine.pt2"
    torch.export.save(torch.export.export(Affine(), (torch.randn(3, 4),)), path)
    return path


@pytest.fixture
def put(store: DiskStore) -> Callable[..., str]:
    """Put an entry by number and return its digest."""

    def put(number: int, **changed: Any) -> str:
        key = CacheKey.of(changed.get("kind", "test"), {"n": number})
        described = {"kind": "test", "name": f"model {number}", "build_s": float(number), "provenance": {"host": "h"}}
        store.put(key, {"artifact": bytes([number]) * 1000}, **{**described, **changed})
        return key.digest

    return put


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run a command in this process, with neither a terminal nor anything to answer with."""

    def run(*args: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Result(int(left.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def program() -> Callable[..., Result]:
    """Run a command with a pipe as its output."""

    def program(*args: object, **changed: str) -> Result:
        command = [sys.executable, "-m", "trtcache_cli", *map(str, args)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, **changed},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return program


@pytest.fixture
def terminal() -> Callable[..., Result]:
    """Run a command as a program at a terminal, typing ``answer``; all it prints is in ``out``.

    With ``piped``, standard output is a pipe: it is in ``out``, and what the terminal shows in ``err``.
    """

    def terminal(
        *args: object, answer: str = "", columns: int = 140, term: str = "xterm", piped: bool = False
    ) -> Result:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "trtcache_cli", *map(str, args)]
        env = {**os.environ, "COLUMNS": str(columns), "TERM": term}
        stdout = subprocess.PIPE if piped else theirs
        child = subprocess.Popen(command, stdin=theirs, stdout=stdout, stderr=theirs, env=env, text=True)
        os.close(theirs)
        if answer:
            os.write(ours, answer.encode())
        shown = read_and_close(ours).replace("\r\n", "\n")
        if not piped:
            return Result(child.wait(), shown, "")
        out, _ = child.communicate()
        return Result(child.returncode, out, shown)

    return terminal
