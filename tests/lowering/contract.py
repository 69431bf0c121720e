"""What every pass promises, and which programs only one pass makes equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tests.lowering.graphs import KEEP, marked, run
from trtcache.keys.graph_digest import graph_records
from trtcache.lowering.capture import export
from trtcache.lowering.decompositions import decompose
from trtcache.lowering.marked_graph import mark
from trtcache.lowering.program import finish
from trtcache.lowering.rewrites.cleanup import DeadCode
from trtcache.lowering.rewrites.sizes import Assertions
from trtcache.lowering.stages import Pipeline, default_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trtcache.lowering.marked_graph import MarkedGraph
    from trtcache.lowering.passes import Pass

DYNAMIC = torch.export.Dim.DYNAMIC


class Calls(torch.nn.Module):
    """A model that calls a function with itself and its inputs; weights are attributes."""

    def __init__(self, function: Callable[..., Any], **weights: Any) -> None:
        super().__init__()
        self.function = function
        for name, weight in weights.items():
            setattr(self, name, torch.nn.Parameter(weight) if isinstance(weight, torch.Tensor) else weight)
        self.eval()

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def keeps_its_promise(
    passes: Pass | Sequence[Pass], model: torch.nn.Module, *args: Any, dynamic: Any = None, calls: Sequence[Any] = ()
) -> MarkedGraph:
    """Run passes, of which the last one is tried, and return the graph without what nothing uses.

    The pass says truly whether it changed the graph, changes nothing when it runs again, and keeps the results for the
    example arguments and for those of ``calls``.
    """
    *before, one = passes if isinstance(passes, (list, tuple)) else (passes,)
    graph = marked(model, *args, dynamic_shapes=_shapes(dynamic))
    Pipeline((Assertions(), *before)).run(graph.graph_module)
    old = _lines(graph)
    changed = Pipeline((one,)).run(graph.graph_module)[0].modified
    assert changed == (_lines(graph) != old)
    new = _lines(graph)
    assert not one(graph.graph_module).modified
    assert _lines(graph) == new
    for call in (args, *calls):
        expected = pytree.tree_leaves(model(*call))
        torch.testing.assert_close(run(graph, (call, {})), expected, rtol=1e-5, atol=1e-5)
    Pipeline((DeadCode(),)).run(graph.graph_module)
    return graph


def _shapes(dynamic: Any) -> Any:
    return None if dynamic is None else (dynamic,)


def _lines(graph: MarkedGraph) -> list[Any]:
    return [(node.name, node.target, str(node.args), str(node.kwargs)) for node in graph.graph_module.graph.nodes]


def operators(graph: MarkedGraph) -> list[str]:
    """Return the operators of a graph by name, in its order: ``["reshape", "mm"]``."""
    targets = [node.target for node in graph.graph_module.graph.nodes if node.op == "call_function"]
    return [getattr(target, "overloadpacket", target).__name__ for target in targets]  # type: ignore[union-attr]  # never text


def only_with(name: str, one: torch.nn.Module, other: torch.nn.Module, *args: Any, dynamic: Any = None) -> None:
    """Assert that two models answer alike, have one key with all passes, and two without the pass of this name."""
    torch.testing.assert_close(one(*args), other(*args), rtol=1e-5, atol=1e-5)
    whole = default_pipeline()
    less = Pipeline(tuple(entry for entry in whole.passes if entry.name != name), rounds=whole.rounds)
    assert _digest(one, args, dynamic, whole) == _digest(other, args, dynamic, whole)
    assert _digest(one, args, dynamic, less) != _digest(other, args, dynamic, less)


def _digest(model: torch.nn.Module, args: Any, dynamic: Any, pipeline: Pipeline) -> object:
    exported = decompose(export(model, args, {}, _shapes(dynamic)), KEEP)
    graph = mark(exported)
    runs = pipeline.run(graph.graph_module)
    return graph_records(finish(exported, graph, name="", pipeline=(), runs=runs))[1]
