"""Tuples takes one part of a tensor instead of a tuple of all parts."""

from __future__ import annotations

import operator

import pytest
import torch

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from tests.lowering.graphs import marked
from trtcache.lowering.rewrites.indexing import Tuples

X = torch.randn(6, 4)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda _, x: x.split(4)[1] * 2, ["slice", "mul"]),
        (lambda _, x: x.split([1, 2, 3], 0)[2] * 2, ["slice", "mul"]),
        (lambda _, x: x.chunk(2, -1)[0] * 2, ["slice", "mul"]),
        (lambda _, x: x.topk(2)[0] * 2, ["topk", "getitem", "mul"]),
    ],
)
def test_an_item_of_a_split_is_a_slice(function: object, left: list[str]) -> None:
    """Parts are taken from the tensor; results of operators that compute several things stay a tuple."""
    assert operators(keeps_its_promise(Tuples(), Calls(function), X)) == left


def test_an_item_of_a_split_that_is_counted_from_the_end_is_a_slice() -> None:
    """A pass of somebody else may write it so."""
    graph = marked(Calls(lambda _, x: x.split(2, 1)[0] * 2), X)
    (item,) = graph.graph_module.graph.find_nodes(op="call_function", target=operator.getitem)
    expected = graph.graph_module(X)[0] if isinstance(graph.graph_module(X), tuple) else graph.graph_module(X)
    item.update_arg(1, -len(item.args[0].meta["val"]))
    assert Tuples()(graph.graph_module).modified
    graph.graph_module.recompile()
    found = graph.graph_module(X)
    torch.testing.assert_close(found[0] if isinstance(found, tuple) else found, expected)


def test_an_item_of_an_unbind_is_a_select() -> None:
    """Nothing else of the tensor is taken."""
    graph = keeps_its_promise(Tuples(), Calls(lambda _, x: x.unbind(1)[2] * 2), X)
    assert "getitem" not in operators(graph)


def test_splits_along_other_dimensions_keep_a_symbolic_batch() -> None:
    """A split of columns works for any number of rows, one of rows by a number of them is left alone."""
    model = Calls(lambda _, x: x.split(2, 1)[1] * 2)
    graph = keeps_its_promise(Tuples(), model, X, dynamic=({0: DYNAMIC, 1: None},), calls=[(torch.randn(9, 4),)])
    assert operators(graph) == ["slice", "mul"]


def test_an_item_of_a_tuple_in_the_graph_is_the_item() -> None:
    """A tuple that a pass of somebody else left behind is taken apart."""
    graph = marked(Calls(lambda _, x: x.relu() + x.abs()), X)
    (add,) = graph.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    with graph.graph_module.graph.inserting_before(add):
        item = graph.graph_module.graph.call_function(operator.getitem, (add.args, 1))
    item.meta["val"] = add.args[1].meta["val"]
    add.update_arg(1, item)
    assert Tuples()(graph.graph_module).modified
    assert operators(graph) == ["relu", "abs", "add"]


def test_splitting_makes_no_difference() -> None:
    """Only this pass gives a split and a slice the same key."""
    only_with("tuples", Calls(lambda _, x: x.split(2, 1)[0] * 2), Calls(lambda _, x: x[:, :2] * 2), X)
