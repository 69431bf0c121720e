"""Processes that build: what they cannot do is done here, their errors are ours, and none is left behind."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.partition.parts import SOFTMAX, Attention, inputs
from tests.prepare import prepare
from trtcache import Cache
from trtcache.backends.aot_inductor.backend import AotInductor
from trtcache.backends.protocol import Artifact
from trtcache.compiler import build_pool as pools
from trtcache.compiler.build_pool import Pool
from trtcache.config.environment import Config
from trtcache.errors import BuildError
from trtcache.settings import Settings
from trtcache.testing.interpreter import Interpreter

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.frontends.request import TorchRequest

ANSWERING = "import sys\nfor _ in sys.stdin: print({answer!r}, flush=True)"


@pytest.fixture
def request_() -> TorchRequest:
    """A request for a package."""
    return prepare(Attention(), inputs(3), backend="aot_inductor")


@pytest.mark.parametrize(
    "settings",
    [{}, {"weights": "packed"}, {"weights": "auto"}, {"autocast": "bf16", "inductor": {"epilogue_fusion": False}}],
)
def test_a_worker_has_the_key_of_the_requesting_process(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all settings that the key has; with another key it would not build."""
    calls: list[object] = []

    def build(*arguments: object) -> Artifact:
        calls.append(arguments)
        return Artifact(tmp_path / "engine", {})

    monkeypatch.setattr("trtcache.backends.registry.build_artifact", build)
    settings = {**SOFTMAX, **settings}
    request = prepare(Attention(), inputs(3), backend="aot_inductor", settings=Settings.of(settings)).partitions[0]
    assert pools._write(request, tmp_path / "one")
    assert pools._build(tmp_path / "one")["members"] == []
    assert len(calls) == 1


def answering(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let the pool's processes run other code than the worker."""
    start = subprocess.Popen

    def other(_: Any, **more: Any) -> Any:
        return start([sys.executable, "-S", "-c", code], **more)

    monkeypatch.setattr(pools.subprocess, "Popen", other)


def test_an_error_of_the_builder_is_a_build_error(
    request_: TorchRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it said."""
    answering(monkeypatch, ANSWERING.format(answer='{"error": "no compiler"}'))
    with Pool(1) as pool, pytest.raises(BuildError, match="building aot_inductor failed: no compiler"):
        pool.build(request_, tmp_path / "one")


@pytest.mark.parametrize(
    "code", [ANSWERING.format(answer='{"mismatch": "its key is another"}'), "import sys; sys.stdin.readline()"]
)
def test_what_another_process_cannot_build_is_built_here(
    request_: TorchRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """One that makes another key, and one that dies."""
    answering(monkeypatch, code)
    with Pool(1) as pool:
        assert pool.build(request_, tmp_path / "one") is None


def test_processes_end_with_the_pool(request_: TorchRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are doing when an interrupt comes."""
    answering(monkeypatch, "import time; time.sleep(600)")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pools, "_send", interrupt)
    with pytest.raises(KeyboardInterrupt), Pool(1) as pool:
        pool.build(request_, tmp_path / "one")
    assert [process.returncode for process in pool._all] == [-signal.SIGKILL]


def test_an_interrupted_process_is_not_replaced(
    request_: TorchRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a terminal ends it before this process knows; a build here would be waited for."""
    answering(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    with Pool(1) as pool, pytest.raises(BuildError, match="it was interrupted"):
        pool.build(request_, tmp_path / "one")


def test_an_ended_pool_starts_no_process(request_: TorchRequest, tmp_path: Path) -> None:
    """A build that asks for one after an interrupt would run to its end unseen."""
    with Pool(1) as pool:
        pool.end()
        with pytest.raises(BuildError, match="it was interrupted"):
            pool.build(request_, tmp_path / "one")
        assert pool._all == []


@pytest.mark.usefixtures("quick_children")
def test_a_backend_of_this_process_alone_builds_here(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process has another key for it, says so, and the answers are right all the same."""
    able = replace(Interpreter.capabilities, builds_elsewhere=True)
    monkeypatch.setattr(Interpreter, "capabilities", able)
    settings = {**SOFTMAX, "build_processes": 2}
    with caplog.at_level(logging.INFO):
        module = trtcache.compile(Attention(), inputs(3), backend=interpreter, cache=tmp_path, settings=settings)
    assert "building 2 partitions in 2 processes" in caplog.text
    assert caplog.text.count("in this process: another process cannot rebuild it") == 1
    given = inputs(3)
    torch.testing.assert_close(module(*given), Attention()(*given))


@pytest.mark.usefixtures("quick_children")
def test_parts_are_built_in_processes_where_they_are_built_at_all(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Stored ones are if ``TRTCACHE_RECACHE=1``, and those of a lower layer are hits."""
    able = replace(Interpreter.capabilities, builds_elsewhere=True)
    monkeypatch.setattr(Interpreter, "capabilities", able)

    def compile_in(cache: Cache) -> set[str]:
        caplog.clear()
        settings = {**SOFTMAX, "build_processes": 2}
        with caplog.at_level(logging.INFO):
            module = trtcache.compile(Attention(), inputs(3), backend=interpreter, cache=cache, settings=settings)
        return {part.outcome for part in module.report.partitions}

    below = tmp_path / "below"
    assert compile_in(Cache(below)) == {"built"}
    assert compile_in(Cache(tmp_path / "upper", lower=[below])) == {"hit"}
    assert "parts in" not in caplog.text
    assert compile_in(Cache(config=Config(root=below, recache=True))) == {"built"}
    assert "building 2 partitions in 2 processes" in caplog.text


def test_packages_can_be_built_elsewhere() -> None:
    """It needs no values of weights."""
    assert AotInductor.capabilities.builds_elsewhere
    assert not AotInductor.capabilities.can_freeze
