"""Sizes computes each symbolic size in one way."""

from __future__ import annotations

from typing import Any

import torch

import trtcache
from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.shapes import Shapes
from trtcache.lowering.rewrites.sizes import CanonicalSizes

X = torch.randn(2, 3, 4)
BOTH = ({0: DYNAMIC, 1: DYNAMIC},)


def test_products_are_taken_in_the_order_of_the_inputs() -> None:
    """``a * b`` and ``b * a`` are one node, whatever torch calls the symbols."""
    model = Calls(lambda _, x: (x * (x.shape[0] * x.shape[1]), x + x.shape[1] * x.shape[0]))
    graph = keeps_its_promise(CanonicalSizes(), model, X, dynamic=BOTH, calls=[(torch.randn(5, 7, 4),)])
    assert operators(graph).count("mul") == 2


def test_sums_quotients_and_remainders_are_made_from_the_inputs() -> None:
    """All arithmetic that shapes are made of is understood."""
    model = Calls(lambda _, x: x * (x.shape[0] // 2 + x.shape[1] % 3 + x.shape[0] ** 2 + (x.shape[0] - x.shape[1])))
    keeps_its_promise(CanonicalSizes(), model, X, dynamic=BOTH, calls=[(torch.randn(5, 7, 4),)])


def test_a_size_that_is_a_multiple_gives_its_factor() -> None:
    """Where an input has twice the size, half of it is the size."""
    batch = torch.export.Dim("batch", min=2, max=16)
    model = Calls(lambda _, x: x.view(-1, 2) * (x.shape[0] // 2))
    keeps_its_promise(CanonicalSizes(), model, torch.randn(8), dynamic=({0: 2 * batch},), calls=[(torch.randn(12),)])


def test_a_size_that_is_one_more_gives_the_one_below() -> None:
    """Where an input has one row more than there are steps, the steps are its size less one."""
    steps = torch.export.Dim("steps", min=3, max=16)
    model = Calls(lambda _, x: x[1:].unsqueeze(1) * (x.shape[0] - 1))
    passes = (CanonicalSizes(), Shapes())
    keeps_its_promise(passes, model, torch.randn(8), dynamic=({0: steps + 1},), calls=[(torch.randn(12),)])


def test_a_size_may_stand_before_what_it_is_made_of_now() -> None:
    """Where an input has the size that was computed, nothing is left over of the way to it."""
    batch = torch.export.Dim("batch", min=2, max=16)
    model = Calls(lambda _, x, y: y[: 2 * x.shape[0] + 1].reshape(-1, 4).sum(1) + x.sum())
    args, shapes = (torch.ones(3, 4), torch.ones(7, 4)), {"args": ({0: batch}, {0: 2 * batch + 1})}
    text = trtcache.lower(model, args, dynamic_shapes=shapes, backend="aot_inductor").text
    assert "sym_size" not in text
    assert text.count("aten.") == 3


def test_sizes_that_operators_make_stay() -> None:
    """The number of elements that are not zero is read where it is made."""
    model = Calls(lambda _, x: torch.nonzero(x).sum() * torch.nonzero(x).shape[0])
    assert "sym_size" in operators(keeps_its_promise(CanonicalSizes(), model, torch.tensor([1.0, 0.0, 2.0])))


def test_static_graphs_are_left_alone() -> None:
    """Without symbols there is nothing to do."""
    assert operators(keeps_its_promise(CanonicalSizes(), Calls(lambda _, x: x * x.shape[0]), X)) == ["mul"]


def test_the_order_of_factors_makes_no_difference() -> None:
    """Only this pass gives arithmetic on sizes in another order the same key."""
    one = Calls(lambda _, x: x * (x.shape[0] * x.shape[1]))
    only_with("sizes", one, Calls(lambda _, x: x * (x.shape[1] * x.shape[0])), X, dynamic=BOTH)


def test_a_size_that_cannot_be_made_leaves_what_could_be() -> None:
    """The pass says that it changed the graph where only parts of an expression are made."""
    least: Any = torch.sym_min
    check: Any = torch._check

    def checked(_: object, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        check(least(least(x.shape[0], 5), x.shape[1]) == n.item() + x.shape[1])
        check(x.shape[0] + x.shape[1] > least(x.shape[0] % 4, least(x.shape[0], 3)))
        return x * 2

    program = torch.export.export(
        Calls(checked), (torch.randn(4, 5), torch.tensor(-1)), dynamic_shapes=(({0: DYNAMIC, 1: DYNAMIC}, None),)
    )
    assert trtcache.lower(program).interface.inputs
