"""Removes assertions about tensors and sizes that the graph or its interface already prove."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import OUT_OF_RANGE

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten

_PROVEN = frozenset(
    {
        *(aten._assert_tensor_metadata.default, aten.sym_constrain_range.default),
        aten.sym_constrain_range_for_size.default,
    }
)


@dataclass(frozen=True, slots=True)
class Assertions(Pass):
    """Removes ``_assert_tensor_metadata`` and ``sym_constrain_range``, and words every ``_assert_scalar`` alike.

    Dtype, device and layout of every value are known in the graph, and ranges of symbols are in the interface, by which
    inputs are checked when a module is called. Assertions on values (``_assert_async``) and on sizes that operators
    make stay, as side effects; torch's messages for the latter name symbols and nodes, which equal programs need not
    share.
    """

    name: ClassVar[str] = "assertions"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove the assertions in place."""
        modified = False
        for node in graph_module.graph.nodes:
            if node.target in _PROVEN:
                graph_module.graph.erase_node(node)
                modified = True
            elif node.target is aten._assert_scalar.default and node.args[1] != OUT_OF_RANGE:
                node.args = (node.args[0], OUT_OF_RANGE)
                modified = True
        return PassResult(graph_module, modified)
