"""Removes assertions about tensors that the graph already proves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from trtcache.lowering.passes import Pass, PassResult

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True, slots=True)
class Assertions(Pass):
    """Removes ``aten._assert_tensor_metadata``: dtype, device and layout of every value are known in the graph.

    What they guard is decided when a module is called: its inputs are checked against what the graph was made with.
    Assertions on values and on symbolic sizes stay, as side effects.
    """

    name: ClassVar[str] = "assertions"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove the assertions in place."""
        proven = graph_module.graph.find_nodes(
            op="call_function", target=torch.ops.aten._assert_tensor_metadata.default
        )
        for node in proven:
            graph_module.graph.erase_node(node)
        return PassResult(graph_module, bool(proven))
