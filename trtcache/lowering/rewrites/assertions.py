"""Removal of assertions about tensors and sizes that the graph or its interface already proves."""

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
    """Remove ``_assert_tensor_metadata`` and ``sym_constrain_range``, and unify the messages of ``_assert_scalar``.

    Dtype, device and layout of every value are known in the graph, and ranges of symbols are in the interface, which is
    checked on each call. Assertions on values (``_assert_async``) and on data-dependent sizes stay, as side effects;
    torch's messages for the latter name symbols and nodes, which may differ between equal programs.
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
