"""Reductions keep their dimensions themselves, and take the greatest element alone."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.dimensions import Dimensions, Reductions
from trtcache.lowering.rewrites.shapes import Shapes
from trtcache.lowering.rewrites.sizes import CanonicalSizes

BEFORE = (Dimensions(), CanonicalSizes(), Shapes(), Reductions())
X = torch.randn(3, 4, 5)


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: x.sum(1).unsqueeze(1),
        lambda _, x: x.mean((0, 2)).view(1, 4, 1),
        lambda _, x: x.amax(1, keepdim=True).squeeze(1),
        lambda _, x: x.var(2)[..., None],
        lambda _, x: (x > 0).any(1).unsqueeze(1),
        lambda _, x: x.argmax(1).unsqueeze(1),
        lambda _, x: x.max(1)[0],
        lambda _, x: x.min(1, keepdim=True).values.squeeze(1),
    ],
)
def test_one_operator_is_left(function: object) -> None:
    """A reduction and a reshape that puts its dimensions back, or takes them out, are one reduction."""
    found = operators(keeps_its_promise(BEFORE, Calls(function), X, dynamic=({0: DYNAMIC},), calls=[(X[:2],)]))
    assert not {"reshape", "getitem", "max", "min"} & set(found)


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: (x.sum(1).unsqueeze(1), x.sum(1) * 2),
        lambda _, x: x.sum(1).unsqueeze(0),
        lambda _, x: x.max(1),
        lambda _, x: x.max(1)[1],
    ],
)
def test_other_reductions_stay(function: object) -> None:
    """Where something else is done with what was reduced, or with its places, nothing changes."""
    graph = keeps_its_promise((Dimensions(), Shapes()), Calls(function), X)
    assert "sum" not in operators(graph) or "reshape" in operators(graph)
    merged = [node for node in graph.graph_module.graph.nodes if "sum" in str(node.target)]
    if len(merged) == 2:
        merged[1].replace_all_uses_with(merged[0])
    assert not Reductions()(graph.graph_module).modified


def test_a_kept_dimension_is_an_unsqueezed_one() -> None:
    """Only this pass gives ``x.sum(1, keepdim=True)`` and ``x.sum(1).unsqueeze(1)`` one key."""
    one, other = Calls(lambda _, x: x.sum(1, keepdim=True) * 2), Calls(lambda _, x: x.sum(1).unsqueeze(1) * 2)
    only_with("reductions", one, other, X)
