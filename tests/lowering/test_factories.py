"""Factories makes tensors of one number in one way."""

from __future__ import annotations

import pytest
import torch

import trtcache
from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.constants import Factories

X = torch.randn(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: torch.zeros(3, 4) + x,
        lambda _, x: torch.zeros_like(x) + x,
        lambda _, x: x.new_ones(3, 4) + x,
        lambda _, x: torch.full_like(x, 2) + x,
        lambda _, x: x.new_full((4,), 3) + x,
        lambda _, x: torch.scalar_tensor(1.5) + x,
        lambda _, x: torch.full((4,), True) * x,
    ],
)
def test_every_tensor_of_one_number_is_a_full(function: object) -> None:
    """It depends on no other tensor, and has the number's own dtype and device."""
    assert operators(keeps_its_promise(Factories(), Calls(function), X))[0] == "full"


def test_a_large_number_is_rounded_once() -> None:
    """A float64 between would round it to the middle of two numbers of float32, and that down."""
    number = 2**60 + 2**36 + 1
    graph = keeps_its_promise(Factories(), Calls(lambda _, x: torch.full_like(x, number) * (x > 9)), X)
    assert operators(graph)[0] == "full"
    with torch.no_grad():
        ones = torch.full((3, 4), 10.0)
        found = trtcache.lower(Calls(lambda _, x: torch.full_like(x, number)), (ones,)).graph_module(ones)
    assert torch.equal(found[0], torch.full_like(ones, number))


def test_symbolic_sizes_are_those_of_the_inputs() -> None:
    """A tensor like a batch has its size, and depends on nothing else of it."""
    batch = Calls(lambda _, x: torch.zeros_like(x.relu()) + x)
    graph = keeps_its_promise(Factories(), batch, X, dynamic=({0: DYNAMIC, 1: None},), calls=[(torch.randn(5, 4),)])
    assert operators(graph) == ["sym_size", "full", "add"]


def test_layouts_of_others_stay() -> None:
    """A transposed tensor gives its layout to its like."""
    assert "full_like" in operators(keeps_its_promise(Factories(), Calls(lambda _, x: torch.zeros_like(x.t())), X))


def test_ways_to_make_zeros_make_no_difference() -> None:
    """Only this pass gives ``zeros_like`` and ``zeros`` the same key."""
    only_with(
        "factories",
        Calls(lambda _, x: torch.zeros_like(x) + x.relu()),
        Calls(lambda _, x: torch.zeros(3, 4) + x.relu()),
        X,
    )
