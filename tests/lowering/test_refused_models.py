"""Models that torch.export makes wrong programs of, which are refused."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from trtcache.errors import ExportError
from trtcache.lowering.capture import export

X = torch.rand(3, 4)


class Equal(nn.Linear):
    """A layer that is equal to all of its class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 7


class InThread(nn.Module):
    """Changes a tensor in another thread, or computes there something that it does not use."""

    def __init__(self, does: Any) -> None:
        super().__init__()
        self.does = does

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        thread = threading.Thread(target=self.does, args=(y,))
        thread.start()
        thread.join()
        return y + 1


def test_modules_that_are_equal() -> None:
    """torch.export would use the weights of one for both."""
    with pytest.raises(ExportError, match=r"modules 0 and 1 are equal.*__eq__"):
        export(nn.Sequential(Equal(4, 4), Equal(4, 4)), (X,), {}, None)
    shared = Equal(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    torch.testing.assert_close(export(model, (X,), {}, None).module()(X), model(X))


def test_operators_in_another_thread() -> None:
    """torch.export would leave them out; a thread that calls none is no reason."""
    with pytest.raises(ExportError, match=r"forward calls aten\.mul_\.Tensor in another thread"):
        export(InThread(lambda y: y.mul_(3)), (X,), {}, None)
    program = export(InThread(lambda y: y.shape), (X,), {}, None)
    torch.testing.assert_close(program.module()(X), X + 1)
