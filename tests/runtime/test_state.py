"""State that a call changes, and what a call returns of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache

if TYPE_CHECKING:
    from pathlib import Path


class Counters(nn.Module):
    """Returns buffers as they were before the call that changes them, in many forms."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("table", torch.zeros(2, 3))
        self.register_buffer("calls", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(2, dtype=torch.bool))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        old = (self.total.clone(), self.total[:2].clone(), self.total.reshape(-1).clone(), self.table.clone().t())
        flags = (self.calls.clone(), self.seen.clone())
        self.total.add_(x)
        self.table.add_(x)
        self.calls.add_(1)
        self.seen.logical_not_()
        return (*old, *flags, self.total + 0, self.total)


@pytest.mark.slow
def test_old_state_is_returned_as_it_was(engines: Path) -> None:
    """A buffer's content before a call stays what it was, in every form in which it is returned, call after call."""
    model, x = Counters().eval(), torch.ones(3)
    compiled = trtcache.compile(Counters().eval(), (x,), cache=engines)
    kept = []
    for _ in range(3):
        expected, found = model(x), compiled(x)
        kept.append((found[:6], [one.clone() for one in expected[:6]]))
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert torch.equal(one, other), place
    assert all(torch.equal(one, other) for found, expected in kept for one, other in zip(found, expected, strict=True))
