"""A backend for tests of several processes: the graph itself is the artifact, and a build may take long or fail."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch

from trtcache.backends.program_forms import to_module_with_weights
from trtcache.backends.protocol import Artifact
from trtcache.errors import BuildError
from trtcache.testing import interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.target import Target


class Portable(interpreter.Interpreter):
    """Runs programs of fixed sizes; its artifacts run in every process.

    ``PORTABLE_LOG`` names a file that gets a line with the process id, threads and niceness for each build;
    ``PORTABLE_BUILD`` is ``fail``, ``kill``, or the seconds that a build takes.
    """

    name: ClassVar[str] = "portable"

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the version of torch."""
        return {"torch": torch.__version__}

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Write the graph with examples of its inputs."""
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
        graph, examples = to_module_with_weights(program)
        artifact = folder / "engine.pt"
        torch.save(
            (graph, tuple(torch.empty_strided(one.shape, one.stride(), dtype=one.dtype) for one in examples)), artifact
        )
        return Artifact(artifact)

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> interpreter.Interpretation:
        """Return the graph with its constants and weights in place."""
        graph, examples = torch.load(io.BytesIO(bytes(artifact)), weights_only=False)
        interpreter._GRAPHS.append((graph, examples))
        return interpreter.Interpretation(len(interpreter._GRAPHS) - 1, constants, weights)
