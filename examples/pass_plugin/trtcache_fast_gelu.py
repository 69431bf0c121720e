"""A lowering pass for trtcache: GELU by its approximation with tanh, which many accelerators have a kernel for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from trtcache.lowering.passes import Pass, PassResult


@dataclass(frozen=True, slots=True)
class FastGelu(Pass):
    """Replaces exact GELU by its approximation with tanh; results change by up to 5e-4."""

    name: ClassVar[str] = "fast_gelu"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Return the graph, and whether it was changed."""
        gelu = torch.ops.aten.gelu.default
        found = [
            node
            for node in graph_module.graph.find_nodes(op="call_function", target=gelu)
            if node.kwargs.get("approximate", "none") == "none"
        ]
        for node in found:
            node.kwargs = {**node.kwargs, "approximate": "tanh"}
        return PassResult(graph_module, bool(found))

    def ensures(self, graph_module: fx.GraphModule) -> str | None:
        """Return how the result violates the pass's promise, or None."""
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.gelu.default):
            if node.kwargs.get("approximate") != "tanh":
                return f"{node} is an exact GELU"
        return None
