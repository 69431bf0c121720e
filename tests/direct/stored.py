"""A backend for tests that two processes share: the interpreter, with its graph written as source."""

from __future__ import annotations

import pickle
import types
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.backends.program_forms import to_module_with_weights
from trtcache.backends.protocol import Artifact, Engine
from trtcache.errors import IncompatibleEngineError
from trtcache.testing.interpreter import Interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.target import Target


def install_stored(site: Path) -> Path:
    """Install the backend into a directory, for processes that have it in ``PYTHONPATH``, and return the directory."""
    info = site / "stored-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Name: stored\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trtcache.backends]\nstored = tests.direct.stored:Stored\n")
    return site


class Stored(Interpreter):
    """Runs lowered programs on the CPU from their source; artifacts work in every process."""

    name: ClassVar[str] = "stored"

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the version of torch."""
        return {"torch": torch.__version__}

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Write the graph as source."""
        graph, _ = to_module_with_weights(program)
        code = graph.graph.python_code("self")
        names = {
            name: ("module", value.__name__) if isinstance(value, types.ModuleType) else ("value", value)
            for name, value in code.globals.items()
        }
        artifact = folder / "engine.bin"
        artifact.write_bytes(pickle.dumps((code.src, names, [name for name, _ in graph.named_buffers()])))
        return Artifact(artifact)

    def load(  # type: ignore[override]  # another engine
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> Running:
        """Return the graph with its constants and weights in place."""
        return Running(bytes(artifact), constants, weights)


class Running(Engine):
    """A graph with weights in it."""

    shares_weights: ClassVar[bool] = True

    def __init__(self, artifact: bytes, constants: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]):
        """Put constants and weights where the graph wants them."""
        self._artifact, self._constants = artifact, constants
        source, names, buffers = pickle.loads(artifact)  # noqa: S301  # a test's own file
        given = {**constants, **weights}
        self._root = torch.nn.Module()
        for name in buffers:
            if name not in given:
                raise IncompatibleEngineError("stored", f"{name} is unset")
            self._root.register_buffer(name, given[name])
        space: dict[str, Any] = {"torch": torch}
        for name, (kind, value) in names.items():
            space[name] = __import__(value, fromlist=["_"]) if kind == "module" else value
        exec(compile(source, "<stored graph>", "exec"), space)  # noqa: S102  # a graph's own source
        self._forward = space["forward"]

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Running:
        """Return the same graph with other weights."""
        return Running(self._artifact, self._constants, weights)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the graph."""
        with torch.no_grad():
            return list(self._forward(self._root, *inputs))
