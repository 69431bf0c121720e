"""One process of ``benchmarks.export``: compiles and exports a program with a large engine, or loads one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

import trtcache
from benchmarks.memory import watched
from benchmarks.timing import timed
from trtcache.backends.protocol import Artifact, Backend, Capabilities, Engine
from trtcache.config import backend_settings
from trtcache.target import Target, resolve_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings

_CHUNK_BYTES = 1 << 26
X = torch.ones(2, 4)


class Large(Backend):
    """Builds engines of random bytes, and keeps the bytes that it loads."""

    name: ClassVar[str] = "large"
    version: ClassVar[int] = 1
    capabilities: ClassVar[Capabilities] = Capabilities(devices=frozenset({"cpu"}), keep=frozenset(), refit=True)

    def unavailable(self, device: str) -> str | None:
        """Run on the CPU alone."""
        return None if device == "cpu" else "it runs on the CPU"

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return this machine."""
        return resolve_target(requested, device=device.type)

    def toolchain(self, device: str) -> Mapping[str, object]:  # noqa: ARG002
        """Return the version of torch."""
        return {"torch": torch.__version__}

    def ambient(self) -> Mapping[str, object]:
        """Return nothing."""
        return {}

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:  # noqa: ARG002
        """Write random bytes."""
        draw, path = np.random.default_rng(0), folder / "engine"
        with path.open("wb") as file:
            for _ in range(int(sys.argv[4]) // _CHUNK_BYTES):
                file.write(draw.bytes(_CHUNK_BYTES))
        return Artifact(path)

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,  # noqa: ARG002
        constants: Mapping[str, torch.Tensor],  # noqa: ARG002
        weights: Mapping[str, torch.Tensor],
    ) -> Kept:
        """Keep the bytes."""
        return Kept(artifact, weights)


class Kept(Engine):
    """An engine that adds its first weight."""

    shares_weights: ClassVar[bool] = True

    def __init__(self, artifact: bytes | memoryview, weights: Mapping[str, torch.Tensor]) -> None:
        """Keep both."""
        self.artifact, self._weights = artifact, weights

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Kept:
        """Return the same with other weights."""
        return Kept(self.artifact, weights)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Add the first weight."""
        return [inputs[0] + self._weights["w0"]]


class Adding(torch.nn.Module):
    """What the engine stands for."""

    def __init__(self) -> None:
        """Have one weight."""
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add it."""
        return x + self.weight


def main() -> None:
    """Do one step, and print its figures."""
    step, way, place = sys.argv[1:4]
    folder = Path(place)
    backend_settings.BUILT_IN = {**backend_settings.BUILT_IN, "large": "benchmarks.export_process:Large"}
    print(json.dumps(_export(way, folder) if step == "export" else _load(way, folder)))


def _export(way: str, folder: Path) -> dict[str, float]:
    module: Any = trtcache.compile(Adding(), (X,), backend="large", cache=folder / "cache")
    trtcache.export(module, folder / "warm.pt2", engines="reference")  # what is imported once is no part of it
    with watched() as memory:
        _, export_s = timed(lambda: trtcache.export(module, folder / "program.pt2", engines=way))
    size_bytes = (folder / "program.pt2").stat().st_size
    return {"export.extra_bytes": memory.extra_bytes, "export_s": export_s, "file_bytes": size_bytes}


def _load(way: str, folder: Path) -> dict[str, float]:
    import trtcache.bundle.open_file  # what is imported once is no part of it

    cache = trtcache.Cache(folder / "cache") if way == "reference" else None
    with watched() as memory:
        module, load_s = timed(lambda: _loaded(folder, cache))
    assert torch.equal(module(X), X + 1)
    return {"load.extra_bytes": max(0, memory.peak_bytes - memory.before_bytes), "load_s": load_s}


def _loaded(folder: Path, cache: trtcache.Cache | None) -> Any:
    return trtcache.load(folder / "program.pt2", trust="local-file", cache=cache)


if __name__ == "__main__":
    main()
