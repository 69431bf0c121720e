"""Concatenations writes what is put together from tensors as one ``cat``."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.indexing import Concatenations
from trtcache.lowering.rewrites.shapes import Shapes

X, Y = torch.randn(3, 4), torch.randn(3, 4)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda _, x, y: torch.cat([torch.cat([x, y]), torch.cat([y, x])]), ["cat"]),
        (lambda _, x, y: torch.cat([torch.cat([torch.cat([x, y], 1), y], -1), x], 1), ["cat"]),
        (lambda _, x, y: torch.cat([x[:, None], y[:, None]], 1), ["cat", "reshape"]),
        (lambda _, x, y: torch.cat([x[None], y[None], x[None]]), ["cat", "reshape"]),
        (
            lambda _, x, y: torch.cat([x.view(2, 6)[:, None], y.view(2, 6)[:, None]], 1),
            [*["reshape"] * 2, "cat", "reshape"],
        ),
        (lambda _, x, y: torch.cat([x[None, None], y[None, None]]), ["cat", "reshape", "reshape"]),
    ],
)
def test_what_is_put_together_is_one_cat(function: object, expected: list[str]) -> None:
    """Of the tensors themselves, wherever dimensions of size 1 were put in for it."""
    assert operators(keeps_its_promise((Shapes(), Concatenations()), Calls(function), X, Y)) == expected


def test_symbolic_sizes_stay_symbolic() -> None:
    """A stack of batches is a cat and a reshape for every size of the batch."""
    model = Calls(lambda _, x, y: torch.cat([x[:, None], y[:, None]], 1))
    sizes = ({0: DYNAMIC, 1: None}, {0: DYNAMIC, 1: None})
    calls = [(torch.randn(5, 4), torch.randn(5, 4))]
    graph = keeps_its_promise((Shapes(), Concatenations()), model, X, Y, dynamic=sizes, calls=calls)
    assert operators(graph)[-2:] == ["cat", "reshape"]


def _cast(_: object, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    whole = torch.arange(2049, 2055)
    return torch.cat([torch.cat([whole, x.half().flatten()]), y.flatten()])


@pytest.mark.parametrize(
    ("function", "cats"),
    [
        (_cast, 2),
        (lambda _, x, y: torch.cat([torch.cat([x, y]), torch.cat([y, x])], 1), 3),
        (lambda _, x, y: (joined := torch.cat([x, y]), torch.cat([joined, x])), 2),
        (lambda _, x, y: torch.cat([x[..., None], y[..., None]], -1), 1),
        (lambda _, x, y: torch.cat([x[:, :1], y[:, None, 0]], 1), 1),
    ],
    ids=["casts", "other dimension", "used twice", "last dimension", "slices"],
)
def test_what_is_something_else_stays(function: object, cats: int) -> None:
    """A cast that rounds, another dimension, a part that others use, and tensors that have the dimension."""
    found = operators(keeps_its_promise((Shapes(), Concatenations()), Calls(function), X, Y))
    assert found.count("cat") == cats
    assert found[-1] == "cat"


def test_a_stack_written_by_hand_is_a_stack() -> None:
    """Only this pass gives ``stack`` and a ``cat`` of ``unsqueeze`` one key."""
    one = Calls(lambda _, x, y: torch.stack([x, y], 1).relu())
    only_with("concatenations", one, Calls(lambda _, x, y: torch.cat([x[:, None], y[:, None]], 1).relu()), X, Y)
