"""Selection of an index or a range as one ``slice`` along each dimension."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.lowering.arguments import arguments
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import calls_of, insert_call, is_static, tensor_of

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Slices(Pass):
    """Rewrite ``select`` to a ``slice`` of one index (of several) and a ``reshape``, and merge slices of slices.

    ``x[1]``, ``x.unbind()[1]`` and ``x[1:2].squeeze(0)`` are then one program. A select at a computed index, and slices
    along a symbolic dimension with bounds from its end, are unchanged.
    """

    name: ClassVar[str] = "slices"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place. Unused parts of a merged chain are left for dead code elimination."""
        modified = False
        for node in calls_of(graph_module.graph, (aten.select.int,)):
            modified |= _slice_one(node)
        for node in calls_of(graph_module.graph, (aten.slice.Tensor,)):
            modified |= _join(node)
        return PassResult(graph_module, modified)


def _slice_one(node: fx.Node) -> bool:
    source, dim, index = arguments(node)
    shape = node.meta["val"].shape
    sizes: list[Any] | None = list(shape) if is_static(shape) else SizeNodes(node.graph).of_all(shape)
    if type(index) is not int or sizes is None:
        return False
    value = source.meta["val"]
    dim %= value.dim()
    if index < 0 and type(value.shape[dim]) is int:
        index += value.shape[dim]
    sliced = source
    if type(value.shape[dim]) is not int or value.shape[dim] != 1:
        end = sys.maxsize if index == -1 else index + 1
        sliced = insert_call(node, aten.slice.Tensor, (source, dim, index, end), node.meta["val"].unsqueeze(dim))
    node.target, node.args, node.kwargs = aten.reshape.default, (sliced, sizes), {}
    return True


def _join(node: fx.Node) -> bool:
    source, dim, start, _, step = arguments(node)
    if source.target is not aten.slice.Tensor:
        return False
    inner, inner_dim, inner_start, _, inner_step = arguments(source)
    made, middle, whole = tensor_of(node), tensor_of(source), tensor_of(inner)
    if made is None or middle is None or whole is None or dim % made.dim() != inner_dim % made.dim():
        return False
    dim %= made.dim()
    sizes = (made.shape[dim], middle.shape[dim], whole.shape[dim])
    if not is_static(sizes) or not is_static((start or 0, inner_start or 0)):
        return False
    first = _place(inner_start, sizes[2]) + _place(start, sizes[1]) * inner_step
    last = first + (sizes[0] - 1) * step * inner_step + 1 if sizes[0] else first
    node.args = (inner, dim, first, last, step * inner_step)
    node.kwargs = {}
    return True


def _place(start: int | None, size: int) -> int:
    start = start or 0
    return min(max(start + size if start < 0 else start, 0), size)
