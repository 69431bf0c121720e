"""A Dynamo graph as a module of its own: weights in it, one flat tuple of tensors in, one of new tensors out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.integrations.dynamo.arguments import expression, number, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trtcache.integrations.dynamo.arguments import Arguments


def flat_module(
    graph_module: fx.GraphModule, arguments: Arguments, call: Sequence[Any], computed: Iterable[fx.Node]
) -> fx.GraphModule:
    """Return a module that takes the inputs and returns the ``computed`` nodes of Dynamo's graph.

    The weights of ``call`` are its buffers, sizes are read from the inputs, and other numbers are those of ``call``.
    Dynamo's graph stays as it is.
    """
    graph, copies = fx.Graph(), dict[fx.Node, Any]()
    root = torch.nn.Module()
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    for place in arguments.inputs:
        copies[placeholders[place]] = graph.placeholder(placeholders[place].name)
    for place, name in arguments.weights.items():
        root.register_buffer(name, call[place].detach())
        copies[placeholders[place]] = graph.get_attr(name)
    for place, (source, dim) in arguments.sizes.items():
        copies[placeholders[place]] = graph.call_method("size", (copies[placeholders[source]], dim))
    for place in arguments.numbers:
        copies |= dict.fromkeys(_readings(placeholders[place], call[place]), number(call[place]))
    _copy_parts(graph_module, root)
    for node in graph_module.graph.nodes:
        if node.op not in {"placeholder", "output"} and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in computed))
    return fx.GraphModule(root, graph)


def _readings(placeholder: fx.Node, argument: Any) -> list[fx.Node]:
    """Return the nodes that are the value of a number's placeholder: itself, or where it is a tensor what reads it."""
    return list(placeholder.users) if isinstance(argument, torch.Tensor) else [placeholder]


def _copy_parts(graph_module: fx.GraphModule, root: torch.nn.Module) -> None:
    """Give ``root`` what the graph finds in its module: bodies of higher-order operators, and constants."""
    for name, child in graph_module.named_children():
        root.add_module(name, child)
    for name, tensor in (*graph_module.named_buffers(recurse=False), *graph_module.named_parameters(recurse=False)):
        root.register_buffer(name, tensor.detach())


def dynamic_shapes(graph_module: fx.GraphModule, arguments: Arguments) -> tuple[dict[int, Any] | None, ...]:
    """Return which sizes of the inputs vary, with the ranges that Dynamo knows, as ``torch.export`` takes it."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    return tuple(_dynamic(value_of(placeholders[place]).shape) for place in arguments.inputs)


def _dynamic(shape: Sequence[Any]) -> dict[int, Any] | None:
    found = {dim: _hint(size) for dim, size in enumerate(shape) if type(size) is not int}
    return found or None


def _hint(size: Any) -> Any:
    """Return that a size varies, and between which bounds; torch finds out what else must hold of it."""
    bounds = size.node.shape_env.var_to_range.get(expression(size))
    if bounds is None:
        return torch.export.Dim.AUTO
    least, most = (int(bound) if bound.is_Integer else None for bound in (bounds.lower, bounds.upper))
    return torch.export.Dim.AUTO(min=least, max=most)
