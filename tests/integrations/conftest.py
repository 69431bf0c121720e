"""torch_tensorrt as a stand-in of a version, in this process; partitions of small models; what was built."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.integrations import stand_in
from trtcache.cache import Cache
from trtcache.integrations import torch_tensorrt as integration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PACKAGES = ("torch_tensorrt", "tensorrt")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the stand-in writes its builds to."""
    path = tmp_path / "builds.log"
    path.touch()
    monkeypatch.setenv("STAND_IN_LOG", str(path))
    return path


@pytest.fixture
def provide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Path) -> Iterator[Callable[..., None]]:
    """Put a version of torch_tensorrt in the way of imports; at the end it is as if it had never been there."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", torch.cuda.get_device_properties)

    def provide(version: str = "2.14.0", **given: Any) -> None:
        _forget()
        monkeypatch.syspath_prepend(stand_in.write(tmp_path / version, version, **given))

    yield provide
    integration.uninstall()
    _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]:
        del sys.modules[name]
    sys.modules.pop(f"{integration.__name__}.engine_cache", None)  # it has torch_tensorrt's class for a base
    for name in ("engine_cache", "EngineCache"):
        vars(integration).pop(name, None)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """An empty cache."""
    return Cache(tmp_path / "cache")


@dataclass
class Shop:
    """The imported stand-in, and a way to compile partitions with it."""

    log: Path

    def settings(self, **changed: Any) -> Any:
        """Return compilation settings."""
        return import_module("torch_tensorrt.dynamo._settings").CompilationSettings(**changed)

    def compile(self, module: torch.fx.GraphModule, settings: Any = None, **changed: Any) -> Any:
        """Convert a partition as torch_tensorrt's compiler does; return its runtime module."""
        compiler, package = import_module("torch_tensorrt.dynamo._compiler"), import_module("torch_tensorrt")
        examples = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
        inputs = [package.Input(one) for one in examples]
        return compiler.compile_partition(module, inputs, settings or self.settings(**changed))

    def done(self) -> list[str]:
        """Return what was built, refitted and loaded since the last question."""
        lines = self.log.read_text().split()
        self.log.write_text("")
        return lines


@pytest.fixture
def shop(log: Path) -> Shop:
    """A way to compile with the stand-in; a test installs before or after it imports it."""
    return Shop(log)
