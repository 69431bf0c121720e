"""Models that torch.export makes wrong programs of, which are refused."""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import trtcache
from trtcache.errors import ExportError
from trtcache.lowering.capture import explain_failure, export

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Sparse(nn.Module):
    """Returns a sparse tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).to_sparse()


class Colour(enum.Enum):
    """What a model may want to return."""

    RED = 1


class Coloured(nn.Module):
    """Returns an object that is no tensor."""

    def forward(self, x: torch.Tensor) -> Any:
        return x * 2, Colour.RED


def test_results_that_no_engine_returns_are_refused() -> None:
    """Each call would fail."""
    with pytest.raises(ExportError, match=r"result \w+ has the layout torch\.sparse_coo; return a dense tensor"):
        export(Sparse(), (X,), {}, None)
    with pytest.raises(ExportError, match="it returns an object that is no tensor, number, text or None"):
        export(Coloured(), (X,), {}, None)


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


class Writes(nn.Module):
    """Writes to a view of its input plus one, and returns the sum."""

    def __init__(self, write: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        self.write(y)
        return y * 1


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y[:1].expand(3, 4).fill_(3),
        lambda y: y[0].expand(2, 3, 4).masked_fill_(y > 1.5, 9),
        lambda y: y[:, :1].expand(3, 4).index_fill_(1, torch.tensor([0]), 2.0),
        lambda y: y[:1].expand(3, 4).zero_(),
        lambda y: y.as_strided((3, 2), (2, 2)).fill_(1),
        lambda y: torch.zeros(1, 4).expand(3, 4).masked_fill_(y > 1.5, 1.0),
        lambda y: y.flatten().unfold(0, 4, 2).fill_(1),
    ],
)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_write_to_an_expanded_tensor_is_refused(write: Callable[[torch.Tensor], object], is_dynamic: bool) -> None:
    """Torch's functionalization adds up the copies of an element."""
    shapes = ({0: torch.export.Dim.AUTO},) if is_dynamic else None
    with pytest.raises(ExportError, match="writes to a tensor of which several elements are one in memory"):
        trtcache.lower(Writes(write), (X,), dynamic_shapes=shapes)


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.mT.fill_(3),
        lambda y: y[:, ::2].zero_(),
        lambda y: y[1:2].expand(1, 4).fill_(1),
        lambda y: y.flip(0).masked_fill_(y > 1.5, 1.0),
        lambda y: y.as_strided((3, 2), (4, 1)).fill_(1),
        lambda y: y.unfold(1, 2, 2).fill_(1),
        lambda y: y[:1].expand(3, 4).clone().fill_(1),
        lambda y: y.view(-1)[3:].fill_(2),
    ],
)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_write_to_another_view_is_not(write: Callable[[torch.Tensor], object], is_dynamic: bool) -> None:
    """Each of its elements has its own memory."""
    shapes = ({0: torch.export.Dim.AUTO},) if is_dynamic else None
    trtcache.lower(Writes(write), (X,), dynamic_shapes=shapes)


def test_a_message_of_torch_has_no_frames_of_its_libraries() -> None:
    """Some of its errors in C++ end with them."""
    error = RuntimeError(
        "no numel() of symbolic sizes\nException raised from f at a.cpp:1 (most recent call first):\nframe #0: g"
    )
    assert explain_failure(error) == "RuntimeError: no numel() of symbolic sizes"


@pytest.mark.parametrize("function", [lambda x: x.squeeze_(0).mul_(2).sum(), lambda x: x.t_().mul_(2).sum(1)])
def test_a_change_of_the_shape_of_an_argument_is_refused(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Also if its content is changed, too."""

    class Reshapes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    with pytest.raises(ExportError, match=r"forward changes the shape of x in place: use t\(\)"):
        trtcache.lower(Reshapes(), (torch.rand(1, 4),))
