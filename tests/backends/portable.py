"""A backend for tests of several processes: the graph itself is the artifact, and a build may take long or fail."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.backends.program_forms import to_module_with_weights
from trtcache.backends.protocol import Artifact, Engine
from trtcache.errors import BuildError
from trtcache.testing.interpreter import Interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.target import Target


class Portable(Interpreter):
    """Runs programs of fixed sizes; its artifacts run in every process.

    ``PORTABLE_LOG`` names a file that gets a line with the process id, threads and niceness for each build;
    ``PORTABLE_BUILD`` is ``fail``, ``kill``, or the seconds that a build takes.
    """

    name: ClassVar[str] = "portable"

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the version of torch."""
        return {"torch": torch.__version__}

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Write the code of the graph."""
        how = os.environ.get("PORTABLE_BUILD", "")
        if log := os.environ.get("PORTABLE_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{os.getpid()} {torch.get_num_threads()} {os.nice(0)}\n")
        (folder / "intermediate").write_bytes(bytes(1000))
        if how == "fail":
            raise BuildError(self.name, "the compiler found an error")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(how or 0))
        artifact = folder / "engine.txt"
        artifact.write_text(to_module_with_weights(program)[0].code)
        return Artifact(artifact)

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> PortableEngine:
        """Return the graph's code with its constants and weights in place."""
        return PortableEngine(bytes(artifact).decode(), constants, weights)


class PortableEngine(Engine):
    """The code of a graph with weights in it."""

    shares_weights: ClassVar[bool] = True

    def __init__(self, code: str, constants: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
        """Define the function."""
        names: dict[str, Any] = {"torch": torch, "device": torch.device}
        exec(code, names)  # noqa: S102  # a test's own graph
        self._code, self._constants, self._forward = code, constants, names["forward"]
        self._weights = SimpleNamespace(**constants, **weights)

    def refit(self, weights: Mapping[str, torch.Tensor]) -> PortableEngine:
        """Return the same code with other weights."""
        return PortableEngine(self._code, self._constants, weights)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the code."""
        with torch.no_grad():
            return list(self._forward(self._weights, *inputs))
