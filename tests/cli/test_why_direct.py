"""``trtcache why --direct``: the reason that direct mode gave last."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

import trtcache

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Result


class Net(nn.Module):
    """Scales by a number of its own."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale it."""
        return x * self.scale


def test_the_last_miss_is_explained(interpreter: str, run: Callable[..., Result]) -> None:
    """As text and as JSON; an unknown name is reported."""
    for scale in (0.1, 0.2):
        trtcache.compile(Net(scale), (torch.randn(3, 4),), backend=interpreter, direct="on", name="net")
    place = f"operation 1 (line {inspect.getsourcelines(Net.forward)[1] + 2} of {Path(__file__).name})"
    miss = f"miss: {place}: aten.mul.Tensor(input 0, 0.1) -> aten.mul.Tensor(input 0, 0.2)"
    assert run("why", "--direct", "net").err == f"net: {miss}\n"
    assert run("why", "--direct", "--json", "net").json == {"name": "net", "direct": miss}
    assert "has no recorded miss for a model of this name" in run("why", "--direct", "other").err
