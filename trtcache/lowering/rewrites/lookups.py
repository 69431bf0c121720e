"""Row selection by a tensor as one ``index``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from trtcache.lowering.arguments import arguments
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import calls_of, is_dense, tensor_of

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Lookups(Pass):
    """Rewrite ``embedding(table, ids)`` and ``index_select(x, dim, ids)`` to ``index``.

    ``index`` counts negative indices from the end, which the others reject: every call that they accept gives the same
    result. Non-contiguous tables and indices are unchanged, since they may determine the result's layout.
    """

    name: ClassVar[str] = "lookups"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified = False
        for node in calls_of(graph_module.graph, (aten.embedding.default, aten.index_select.default)):
            source, *dims, places = arguments(node)[: 3 - (node.target is aten.embedding.default)]
            if all(map(_is_plain, (source, places))):
                node.target, node.kwargs = aten.index.Tensor, {}
                node.args = (source, [*[None] * sum(dims), places])
                modified = True
        return PassResult(graph_module, modified)


def _is_plain(node: fx.Node) -> bool:
    value = tensor_of(node)
    if value is None or value.dim() == 0:
        return False
    return is_dense(value)
