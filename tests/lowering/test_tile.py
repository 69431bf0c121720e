"""Tile writes repetitions as one repeat, or as an expand."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.cleanup import CommonSubexpressions
from trtcache.lowering.rewrites.shapes import Tile

X = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda _, x: x.tile(2) * 2, ["repeat", "mul"]),
        (lambda _, x: x.tile(2, 1, 1) * 2, ["expand", "mul"]),
        (lambda _, x: torch.cat([x, x, x], -1) * 2, ["repeat", "mul"]),
        (lambda _, x: x.repeat(2, 1).repeat(1, 3) * 2, ["repeat", "mul"]),
        (lambda _, x: x.repeat(2, 1).repeat(5, 1, 3) * 2, ["repeat", "mul"]),
        (lambda _, x: x.repeat(5, 1, 1) * 2, ["expand", "mul"]),
        (lambda _, x: x[:1].repeat(3, 1) * 2, ["slice", "expand", "mul"]),
        (lambda _, x: x[:1].repeat(3, 1), ["slice", "repeat"]),
        (lambda _, x: torch.cat([x, x * 2]), ["mul", "cat"]),
    ],
)
def test_repetitions_are_one_repeat_or_expand(function: object, left: list[str]) -> None:
    """Chains are joined; what repeats single rows is an expand, unless its memory can be seen."""
    assert operators(keeps_its_promise((CommonSubexpressions(), Tile()), Calls(function), X)) == left


def test_repeats_of_a_symbolic_batch_are_kept() -> None:
    """The batch is still any number after it is repeated."""
    model = Calls(lambda _, x: x.tile(2, 1) * 2)
    keeps_its_promise(Tile(), model, X, dynamic=({0: DYNAMIC, 1: None},), calls=[(torch.randn(5, 4),)])


def test_a_symbolic_number_of_repeats_is_left_alone() -> None:
    """How often is not known before the call."""
    model = Calls(lambda _, x: x.repeat(x.shape[0], 1) * 2)
    graph = keeps_its_promise(Tile(), model, X, dynamic=({0: DYNAMIC, 1: None},), calls=[(torch.randn(5, 4),)])
    assert "repeat" in operators(graph)


def test_concatenating_a_tensor_to_itself_is_a_repeat() -> None:
    """Only this pass gives both the same key."""
    only_with("tile", Calls(lambda _, x: torch.cat([x, x]) * 2), Calls(lambda _, x: x.tile(2, 1) * 2), X)
