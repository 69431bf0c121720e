"""Graphs as passes get them, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from trtcache.lowering.capture import export
from trtcache.lowering.decompositions import decompose
from trtcache.lowering.marked_graph import MarkedGraph, mark
from trtcache.lowering.rewriting import recipe_of
from trtcache.weights.recipes import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

KEEP = frozenset({"aten.scaled_dot_product_attention"})


def marked(model: torch.nn.Module, *args: Any, dynamic_shapes: Any = None, **kwargs: Any) -> MarkedGraph:
    """Return a model's graph before the first pass."""
    return mark(decompose(export(model, args, kwargs, dynamic_shapes), KEEP))


def run(marked_graph: MarkedGraph, call: tuple[tuple[Any, ...], dict[str, Any]]) -> list[Any]:
    """Return what a graph answers now, in the order of its outputs; stores of weights are left out."""
    leaves = pytree.tree_leaves(call)
    graph_module = marked_graph.graph_module
    graph = graph_module.graph
    given = [_value(node, leaves, marked_graph.state) for node in graph.find_nodes(op="placeholder")]
    torch.manual_seed(0)
    with torch.no_grad():
        results = fx.Interpreter(graph_module).run(*given)
    roles = graph.output_node().meta["roles"]
    return [one for role, one in zip(roles, results, strict=True) if role.kind != "weight"]


def _value(node: fx.Node, leaves: list[Any], state: Mapping[str, torch.Tensor]) -> Any:
    recipe = recipe_of(node)
    return evaluate(recipe, state) if recipe else leaves[node.meta["input"]]
