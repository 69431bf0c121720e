"""Shapes writes changes of shape as one reshape, and changes of order as one permute."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.cleanup import NoOps
from trtcache.lowering.rewrites.shapes import Shapes
from trtcache.lowering.rewrites.sizes import CanonicalSizes

X = torch.randn(2, 3, 4)
OTHER = torch.randn(5, 3, 4)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda _, x: x.view(6, 4).view(4, 6) * 2, ["reshape", "mul"]),
        (lambda _, x: x.unsqueeze(1).squeeze(1) * 2, ["mul"]),
        (lambda _, x: x.flatten(1).unsqueeze(-1) * 2, ["reshape", "mul"]),
        (lambda _, x: x.view(2, -1).view(2, 3, 4) * 2, ["mul"]),
        (lambda _, x: x.transpose(0, 1).transpose(0, 1) * 2, ["mul"]),
        (lambda _, x: x.permute(2, 0, 1).permute(1, 0, 2) * 2, ["permute", "mul"]),
        (lambda _, x: x.permute(2, 0, 1).permute(1, 2, 0) * 2, ["mul"]),
        (lambda _, x: x[0].t().t() * 2, ["select", "mul"]),
        (lambda _, x: x.unsqueeze(2).transpose(1, 2) * 2, ["reshape", "mul"]),
        (lambda _, x: x[:1].expand(2, -1, -1).expand(2, 3, 4).sum(0), ["slice", "expand", "sum"]),
        (lambda _, x: x[:1].expand(2, -1, -1) + x, ["slice", "add"]),
    ],
)
def test_chains_are_one(function: object, left: list[str]) -> None:
    """What cancels is gone, and the rest is one operator."""
    assert operators(keeps_its_promise(Shapes(), Calls(function), X)) == left


def test_results_are_kept_on_any_strides() -> None:
    """A view that a copy made possible is a reshape of what was copied."""
    model = Calls(lambda _, x: x.permute(2, 0, 1).reshape(4, 6) * 2)
    assert operators(keeps_its_promise((NoOps(), Shapes()), model, X)) == ["permute", "reshape", "mul"]


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: x.flatten(0, 1) * 2,
        lambda _, x: x.view(-1, 4) * 2,
        lambda _, x: x.reshape(x.shape[0] * x.shape[1], x.shape[2]) * 2,
        lambda _, x: x.view(x.size(0), 12).view(x.size(0) * 3, 4) * 2,
        lambda _, x: x.unsqueeze(0).flatten(0, 2) * 2,
    ],
)
def test_symbolic_sizes_stay_symbolic(function: object) -> None:
    """Each way to flatten a batch of any size ends in one reshape to three times that size."""
    graph = keeps_its_promise(
        (CanonicalSizes(), Shapes()), Calls(function), X, dynamic=({0: DYNAMIC},), calls=[(OTHER,)]
    )
    assert operators(graph) == ["sym_size", "mul", "reshape", "mul"]


def test_an_expand_that_changes_a_dtype_stays() -> None:
    """A tensor without dimensions does not raise the dtype of a sum, an expanded one does."""
    double = torch.tensor(2.0, dtype=torch.float64)
    model = Calls(lambda _, x, y: y.expand(4) + x)
    assert "expand" in operators(keeps_its_promise(Shapes(), model, torch.randn(4), double))
    single = Calls(lambda _, x, y: y.expand(4) + x)
    assert operators(keeps_its_promise(Shapes(), single, torch.randn(4), double.float())) == ["add"]


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x, y: x * y[:1, :1].reshape(()),
        lambda _, x, y: x + y[0, :1].squeeze(),
        lambda _, x, y: torch.where(x > 0, x, y[:1, 1].squeeze(0)),
        lambda _, x, y: y[0, 0].unsqueeze(0) * x,
        lambda _, x, y: y[0, 0].expand(1, 1) * x,
    ],
)
def test_a_reshape_that_changes_a_dtype_stays(function: object) -> None:
    """A tensor of one element raises the dtype of a product if it has dimensions, and only then."""
    x, y = torch.full((2, 3), 100, dtype=torch.int8), torch.full((2, 3), 2)
    keeps_its_promise(Shapes(), Calls(function), x, y)  # type: ignore[arg-type]


def test_an_expand_that_makes_the_result_larger_stays() -> None:
    """``relu`` of three rows is not ``relu`` of one."""
    model = Calls(lambda _, x: x.expand(3, 4).relu())
    assert operators(keeps_its_promise(Shapes(), model, torch.randn(1, 4))) == ["expand", "relu"]


def test_sizes_that_only_operators_know_are_left() -> None:
    """The number of elements that are not zero is not a size of any input."""
    model = Calls(lambda _, x: torch.nonzero(x).view(-1) * 2)
    assert "view" in operators(keeps_its_promise(Shapes(), model, torch.tensor([1.0, 0.0, 2.0])))


def test_a_double_transpose_makes_no_difference() -> None:
    """Only this pass gives programs that reshape in other steps the same key."""
    only_with("shapes", Calls(lambda _, x: x.mT.mT.unsqueeze(0) * 2), Calls(lambda _, x: x.view(1, 2, 3, 4) * 2), X)


def test_ways_to_say_a_shape_make_no_difference() -> None:
    """With a batch of any size, flatten and a view by computed sizes have the same key."""
    one = Calls(lambda _, x: x.flatten(0, 1) * 2)
    other = Calls(lambda _, x: x.view(x.shape[1] * x.shape[0], -1) * 2)
    only_with("shapes", one, other, X, dynamic=({0: DYNAMIC, 1: DYNAMIC},))


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda _, x: torch.view_copy(x, (6, 4)), ["clone", "reshape"]),
        (lambda _, x: torch.ops.aten._reshape_copy(x, (6, 4)), ["clone", "reshape"]),
        (lambda _, x: torch.permute_copy(x, (1, 2, 0)), ["permute", "clone"]),
        (lambda _, x: torch.permute_copy(x, (0, 1, 2)), ["clone"]),
        (lambda _, x: torch.view_copy(x, (2, 3, 4)), ["clone"]),
        (lambda _, x: torch.view_copy(x, (6, 4)) * 2, ["reshape", "mul"]),
        (lambda _, x: torch.permute_copy(x, (1, 2, 0)) * 2, ["permute", "mul"]),
    ],
)
def test_a_copy_that_is_returned_stays(function: object, left: list[str]) -> None:
    """A result has its own memory; a copy that only operators use is a view."""
    assert operators(keeps_its_promise(Shapes(), Calls(function), X)) == left


@pytest.mark.skipif(torch.__version__ < "2.13", reason="torch 2.11 exports no view_copy that has to copy")
def test_a_copy_of_symbolic_sizes_stays() -> None:
    """It has the memory order of the result, for each batch."""
    model = Calls(lambda _, x: (torch.view_copy(x.transpose(1, 2), (x.shape[0], 12)), torch.permute_copy(x, (2, 0, 1))))
    graph = keeps_its_promise((CanonicalSizes(), Shapes()), model, X, dynamic=({0: DYNAMIC},), calls=[(OTHER,)])
    assert operators(graph).count("clone") == 2
