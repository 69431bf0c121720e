"""Slices writes every choice of places as one slice for each dimension."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.indexing import Slices

X = torch.randn(6, 8)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda _, x: x[1] * 2, ["slice", "reshape", "mul"]),
        (lambda _, x: x[:, -1] * 2, ["slice", "reshape", "mul"]),
        (lambda _, x: x[1:][:3] * 2, ["slice", "mul"]),
        (lambda _, x: x[:, 1::2][:, 1::2] * 2, ["slice", "mul"]),
        (lambda _, x: x[-4:][-2:] * 2, ["slice", "mul"]),
        (lambda _, x: x[2:2][:1] * 2, ["slice", "mul"]),
        (lambda _, x: x[1:][:, 1:] * 2, ["slice", "slice", "mul"]),
    ],
)
def test_chains_are_one_slice(function: object, left: list[str]) -> None:
    """A select is a slice of one place, and slices of one dimension are joined."""
    assert operators(keeps_its_promise(Slices(), Calls(function), X)) == left


def test_a_symbolic_dimension_keeps_its_bounds() -> None:
    """Places are counted from the end that they were counted from, for every size."""
    model = Calls(lambda _, x: (x[-1] * 2, x[2] * 3, x[1:][1:] * 4, x[:, 3] * 5))
    dynamic = ({0: DYNAMIC, 1: None},)
    keeps_its_promise(Slices(), model, X, dynamic=dynamic, calls=[(torch.randn(4, 8),), (torch.randn(9, 8),)])


def test_a_computed_place_is_left() -> None:
    """The sizes of the result are not computed for it."""
    model = Calls(lambda _, x: x[:, x.shape[1] - 1] * 2)
    dynamic = ({0: DYNAMIC, 1: DYNAMIC},)
    lowered = keeps_its_promise(Slices(), model, X, dynamic=dynamic, calls=[(torch.randn(4, 3),), (torch.randn(9, 5),)])
    assert "select" in operators(lowered)


def test_choosing_a_row_makes_no_difference() -> None:
    """Only this pass gives a select and a slice of one row the same key."""
    only_with("slices", Calls(lambda _, x: x[1] * 2), Calls(lambda _, x: x[1:2].squeeze(0) * 2), X)
