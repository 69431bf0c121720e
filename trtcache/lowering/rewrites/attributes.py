"""Enforcement of the graph contract: weights are inputs, constants belong to the graph module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.constants import new_constant

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True, slots=True)
class Attributes(Pass):
    """Convert tensors in submodules to constants, and reject parameters.

    torch.export has already made inputs of parameters and buffers, and constants of tensors that are plain attributes
    of modules. A parameter that the graph still reads would be a weight without a slot.
    """

    name: ClassVar[str] = "attributes"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified = False
        for node in graph_module.graph.find_nodes(op="get_attr"):
            if "." in str(node.target):
                value = _look_up(graph_module, str(node.target))
                if isinstance(value, torch.Tensor):
                    node.replace_all_uses_with(new_constant(graph_module, value, before=node))
                    graph_module.graph.erase_node(node)
                    modified = True
        return PassResult(graph_module, modified)

    def requires(self, graph_module: fx.GraphModule) -> str | None:
        """Return the first node that reads a parameter, or calls a module, if any."""
        graph = graph_module.graph
        for node in (*graph.find_nodes(op="call_module"), *graph.find_nodes(op="call_method")):
            return f"{node.name} calls {node.target}; the graph must be one of operators"
        for node in graph.find_nodes(op="get_attr"):
            if isinstance(_look_up(graph_module, str(node.target)), torch.nn.Parameter):
                return f"{node.name} reads the parameter {node.target}; weights must be inputs"
        return None


def _look_up(graph_module: fx.GraphModule, path: str) -> object:
    found: object = graph_module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
