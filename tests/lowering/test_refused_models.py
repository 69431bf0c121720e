"""Models that torch.export makes wrong programs of, which are refused."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from trtcache.errors import ExportError
from trtcache.lowering.capture import export

X = torch.rand(3, 4)


class Equal(nn.Linear):
    """A layer that is equal to all of its class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 7


class Tripled(nn.Parameter):
    """A parameter with a product of its own."""

    def __mul__(self, other: Any) -> torch.Tensor:
        return torch.mul(self.as_subclass(torch.Tensor), other) * 3


class Tagged(torch.Tensor):
    """A tensor of a derived class that adds nothing."""


class Weighted(nn.Module):
    """A product with a parameter or buffer of a submodule."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.inner = nn.Module()
        if isinstance(weight, nn.Parameter):
            self.inner.weight = weight
        else:
            self.inner.register_buffer("weight", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner.weight * x  # type: ignore[operator]  # a tensor


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


@pytest.mark.parametrize("weight", [Tripled(torch.ones(4)), torch.ones(4).as_subclass(Tagged)], ids=["own", "tag"])
def test_weights_of_derived_classes(weight: torch.Tensor) -> None:
    """torch.export would use a plain tensor, which has neither their methods nor their class."""
    with pytest.raises(ExportError, match=r"inner\.weight is of class T\w+: .*; use torch\.nn\.Parameter"):
        export(Weighted(weight), (X,), {}, None)


def test_weights_of_several_tensors() -> None:
    """torch.export calls the methods of such a class, and its program has the tensors."""
    weight = TwoTensor(torch.ones(4), torch.full((4,), 2.0))  # type: ignore[no-untyped-call]  # torch's
    model = Weighted(weight)
    torch.testing.assert_close(export(model, (X,), {}, None).module()(X), model(X))


def test_operators_in_another_thread() -> None:
    """torch.export would leave them out; a thread that calls none is no reason."""
    with pytest.raises(ExportError, match=r"forward calls aten\.mul_\.Tensor in another thread"):
        export(InThread(lambda y: y.mul_(3)), (X,), {}, None)
    program = export(InThread(lambda y: y.shape), (X,), {}, None)
    torch.testing.assert_close(program.module()(X), X + 1)
