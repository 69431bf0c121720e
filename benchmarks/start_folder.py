"""The folder that the processes of ``benchmarks.start`` share for one model, and the checks that they all make."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Inputs = tuple[torch.Tensor, ...]
Figures = dict[str, float]

TOLERANCE = 1e-4  # relative to the largest of the answers, which are not all of length 1


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the files of a model are."""

    path: Path

    @property
    def weights(self) -> Path:
        """The weights of the model."""
        return self.path / "weights.safetensors"

    @property
    def program(self) -> Path:
        """The exported program."""
        return self.path / "program.pt2"

    @property
    def artifacts(self) -> Path:
        """What ``torch.compile`` saved."""
        return self.path / "mega-cache.bin"

    def write_inputs(self, inputs: Iterable[torch.Tensor]) -> None:
        """Write the example inputs, so that no process needs what made them."""
        named = {f"input{place}": tensor.contiguous() for place, tensor in enumerate(inputs)}
        save_file(named, self.path / "inputs.safetensors")

    def inputs(self, device: str) -> Inputs:
        """Return the example inputs in their order."""
        found = load_file(self.path / "inputs.safetensors")
        return tuple(found[f"input{place}"].to(device) for place in range(len(found)))

    def write_expected(self, output: torch.Tensor) -> None:
        """Write eager's output."""
        save_file({"output": output.contiguous()}, self.path / "expected.safetensors")

    def check(self, output: torch.Tensor) -> None:
        """Refuse to time a wrong answer.

        Raises:
            SystemExit: it is not eager's.
        """
        expected = load_file(self.path / "expected.safetensors")["output"]
        difference = float((output - expected).abs().max() / expected.abs().max())
        if not difference < TOLERANCE:
            raise SystemExit(f"the output is off by {difference:.1e}")


def process_s() -> float:
    """Return the seconds since this process was started, by its parent's clock."""
    return time.time() - float(os.environ["BENCHMARK_BEGAN_S"])


def device() -> str:
    """Return what the models run on."""
    return os.environ.get("BENCHMARK_DEVICE", "cpu")
