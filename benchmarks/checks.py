"""What it costs to check the inputs of a call: 8 tensors of fixed sizes, and 8 with a dynamic one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

import trtcache
from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.timing import Samples, per_call_s
from trtcache.runtime.inputs import InputCheck

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

INPUTS = 8


class Sum(torch.nn.Module):
    """Takes many tensors and adds them."""

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return torch.stack(tensors).sum(0)


class Guarded(Sum):
    """Branches on sizes, so that its program has four guards."""

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the sum, or its double."""
        first, last = tensors[0].shape, tensors[-1].shape
        if first[0] * first[1] > 4096 or first[1] % 4 or first[0] == last[1] or first[0] + last[1] > 60:
            return 2 * super().forward(*tensors)
        return super().forward(*tensors)


def measure(_folder: Path, _effort: Effort) -> Samples:
    """Return the seconds of one check."""
    tensors = [torch.ones(4, 16) for _ in range(INPUTS)]
    batch = torch.export.Dim("batch", max=64)
    fixed, dynamic = _check(Sum(), tensors, None), _check(Sum(), tensors, (tuple({0: batch} for _ in tensors),))
    varying = tuple({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for _ in tensors)
    guarded = _check(Guarded(), tensors, (varying,))
    wide = [torch.ones(4, 32)[:, ::2] for _ in tensors]
    return {
        "fixed_s": per_call_s(lambda: fixed(tensors), calls=2000),
        "dynamic_s": per_call_s(lambda: dynamic(tensors), calls=500),
        "guarded_s": per_call_s(lambda: guarded(tensors), calls=500),
        "copied_s": per_call_s(lambda: fixed(wide), calls=500),
    }


def _check(model: torch.nn.Module, tensors: list[torch.Tensor], dynamic_shapes: object) -> InputCheck:
    program = trtcache.lower(model, tuple(tensors), dynamic_shapes=dynamic_shapes)
    return InputCheck(program.interface, program.device, str)


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    fixed_s, guarded_s = median(figures, "fixed_s"), median(figures, "guarded_s")
    rows = [
        ("fixed sizes", span(figures["fixed_s"])),
        ("a dynamic size", span(figures["dynamic_s"])),
        ("two dynamic sizes, four guards", span(figures["guarded_s"])),
        ("fixed sizes in another layout, all copied", span(figures["copied_s"])),
    ]
    promises = (
        Promise("checks of a call with 8 inputs", seconds(fixed_s), "at most 20 us", fixed_s <= 20e-6),
        Promise("with dynamic sizes and four guards", seconds(guarded_s), "at most 20 us", guarded_s <= 20e-6),
    )
    return "\n".join(["## The checks of a call\n", table(("8 tensors", "time of a call"), rows), promised(*promises)])
