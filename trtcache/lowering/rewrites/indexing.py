"""Selection of an index or a range as one ``slice`` along each dimension."""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import fx

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import arguments, calls_of, insert_call, is_dense, is_static, replace, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable

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


_Part = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Tuples(Pass):
    """Rewrite an item of a split to a ``slice``, of an unbind to a ``select``, of a tuple in the graph to the item.

    Other tuples are results of operators that compute several things at once; those are unchanged, and so are splits by
    symbolic sizes.
    """

    name: ClassVar[str] = "tuples"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place; unused operators with tuples are left for dead code elimination."""
        modified = False
        for node in graph_module.graph.find_nodes(op="call_function", target=operator.getitem):
            source, item = node.args
            if isinstance(source, (tuple, list)):
                replace(node, source[item])
                modified = True
                continue
            find = _PARTS.get(source.target)
            part = find(source, item) if find is not None else None
            if part is not None:
                node.target, node.args = part
                modified = True
        return PassResult(graph_module, modified)


def _of_sizes(source: fx.Node, item: int) -> _Part | None:
    tensor, sizes, dim = arguments(source)
    if not all(type(size) is int for size in sizes):
        return None
    return _slice(source, tensor, dim, sum(sizes[:item]), sizes[item])


def _of_size(source: fx.Node, item: int) -> _Part | None:
    tensor, size, dim = arguments(source)
    if type(size) is not int:
        return None
    return _slice(source, tensor, dim, item * size, size)


def _slice(source: fx.Node, tensor: fx.Node, dim: int, start: int, size: int) -> _Part | None:
    value = tensor_of(tensor)
    whole = None if value is None else value.shape[dim]
    if value is None or type(whole) is not int or len(source.meta["val"]) == 0:
        return None
    return aten.slice.Tensor, (tensor, dim % value.dim(), start, min(start + size, whole))


def _of_dimension(source: fx.Node, item: int) -> _Part:
    tensor, dim = arguments(source)
    return aten.select.int, (tensor, dim % tensor.meta["val"].dim(), item)


_PARTS: dict[object, Callable[[fx.Node, int], _Part | None]] = {
    aten.split_with_sizes.default: _of_sizes,
    aten.split.Tensor: _of_size,
    aten.unbind.int: _of_dimension,
}


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
