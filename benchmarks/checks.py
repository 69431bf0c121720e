"""What it costs to check the inputs of a call: 8 tensors of fixed sizes, and 8 with a dynamic one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

import trtcache
from benchmarks.timing import Samples, per_call_s
from trtcache.runtime.inputs import InputCheck

if TYPE_CHECKING:
    from pathlib import Path

INPUTS = 8


class Sum(torch.nn.Module):
    """Takes many tensors and adds them."""

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return torch.stack(tensors).sum(0)


def measure(_folder: Path, _rounds: int) -> Samples:
    """Return the seconds of one check."""
    tensors = [torch.ones(4, 16) for _ in range(INPUTS)]
    batch = torch.export.Dim("batch", max=64)
    fixed, dynamic = _check(tensors, None), _check(tensors, (tuple({0: batch} for _ in tensors),))
    wide = [torch.ones(4, 32)[:, ::2] for _ in tensors]
    return {
        "fixed_s": per_call_s(lambda: fixed(tensors), calls=2000),
        "dynamic_s": per_call_s(lambda: dynamic(tensors), calls=500),
        "copied_s": per_call_s(lambda: fixed(wide), calls=500),
    }


def _check(tensors: list[torch.Tensor], dynamic_shapes: object) -> InputCheck:
    program = trtcache.lower(Sum(), tuple(tensors), dynamic_shapes=dynamic_shapes)
    return InputCheck(program.interface, program.device, str)
