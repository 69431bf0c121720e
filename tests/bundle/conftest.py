"""What the tests of programs share: a small program in a file, and a key that signs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from trtcache.config.signing_keys import SecretKey

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def compiled(interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> trtcache.CompiledModule:
    """A compiled module of one engine, of which everything else is written."""
    torch.manual_seed(0)
    cache = tmp_path_factory.mktemp("compiled") / "cache"
    return trtcache.compile(torch.nn.Linear(4, 4), (torch.randn(3, 4),), backend=interpreter, cache=cache)


@pytest.fixture
def program(compiled: trtcache.CompiledModule, tmp_path: Path) -> Path:
    """The file of a program, which nobody signed."""
    path = tmp_path / "program.pt2"
    trtcache.export(compiled, path)
    return path


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SecretKey:
    """A key that signs what is written."""
    key = SecretKey.generate("ci")
    key.write(tmp_path / "ci.key")
    monkeypatch.setenv("TRTCACHE_SIGNING_KEY", str(tmp_path / "ci.key"))
    return key
