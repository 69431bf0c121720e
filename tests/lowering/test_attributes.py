"""Attributes holds a graph to its promise that weights are inputs and constants are its own."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.contract import Calls
from tests.lowering.graphs import marked, run
from trtcache.errors import PreconditionError
from trtcache.lowering.rewrites.constants import Attributes
from trtcache.lowering.stages import Pipeline

X = torch.randn(3, 4)
TABLE = torch.randn(4)


def _with_table(value: torch.Tensor) -> object:
    """Return a graph that reads a tensor inside a module, which a pass of somebody else may leave behind."""
    graph = marked(Calls(lambda _, x: x + 1), X)
    module = graph.graph_module
    module.add_submodule("inner", torch.nn.Module())
    module.inner.table = value
    (add,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    with module.graph.inserting_before(add):
        table = module.graph.create_node("get_attr", "inner.table")
    table.meta["val"] = add.meta["val"].new_empty(4)
    add.update_arg(1, table)
    return graph


def test_what_export_gives_is_left_alone() -> None:
    """Parameters are inputs and constants are the graph's own already."""
    graph = marked(Calls(lambda model, x: x * model.w + torch.tensor([1.0, 2.0, 3.0, 4.0]), w=TABLE), X)
    assert not Attributes()(graph.graph_module).modified


def test_a_tensor_inside_a_module_becomes_a_constant_of_the_graph() -> None:
    """The graph finds it by itself, and answers as before."""
    graph = _with_table(TABLE)
    assert Pipeline((Attributes(),)).run(graph.graph_module)[0].modified
    assert not Attributes()(graph.graph_module).modified
    torch.testing.assert_close(run(graph, ((X,), {})), [X + TABLE])


def test_a_parameter_that_is_no_input_is_refused() -> None:
    """No slot would feed it; the message names it."""
    graph = _with_table(torch.nn.Parameter(TABLE))
    with pytest.raises(PreconditionError, match=r"inner\.table"):
        Pipeline((Attributes(),)).run(graph.graph_module)


def test_a_call_of_a_module_is_refused() -> None:
    """The graph must be one of operators."""
    graph = marked(Calls(lambda _, x: x + 1), X)
    module = graph.graph_module
    module.add_submodule("inner", torch.nn.ReLU())
    (add,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    with module.graph.inserting_after(add):
        module.graph.call_module("inner", (add,))
    with pytest.raises(PreconditionError, match="inner"):
        Pipeline((Attributes(),)).run(module)
