"""A part of a program that torch itself computes, operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.partition.partitions import TorchPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.partition.partitions import Cluster
    from trtcache.partition.sources import Sources
    from trtcache.partition.wires import Wire


def torch_part(cluster: Cluster, outputs: Sequence[fx.Node], sources: Sources) -> TorchPart:
    """Cut a part out of a program.

    Raises:
        ExportError: a size that it needs cannot be told from the inputs' sizes.
    """
    graph = fx.Graph()
    arguments: dict[Wire, fx.Node] = {}
    copies: dict[fx.Node, fx.Node] = {}

    def argument(wire: Wire) -> fx.Node:
        if wire not in arguments:
            arguments[wire] = graph.placeholder(f"a{len(arguments)}")
        return arguments[wire]

    inside = set(cluster.nodes)

    def prepared(value: Any) -> None:
        if isinstance(value, fx.Node) and value not in inside:
            copies[value] = argument(sources.of(value))
        elif isinstance(value, torch.SymInt):
            argument(sources.size(value))

    def number(value: Any) -> Any:
        return arguments[sources.size(value)] if isinstance(value, torch.SymInt) else value

    for node in cluster.nodes:  # placeholders come first in a graph
        fx.node.map_aggregate((node.args, node.kwargs), prepared)
    for node in cluster.nodes:
        copy = graph.node_copy(node, copies.__getitem__)
        copy.args, copy.kwargs = fx.node.map_aggregate((copy.args, copy.kwargs), number)
        copies[node] = copy
    graph.output(tuple(copies[node] for node in outputs))
    return TorchPart(fx.GraphModule(torch.nn.Module(), graph), tuple(arguments), len(outputs), cluster)
