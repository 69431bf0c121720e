"""Selection of an index or a range as one ``slice`` along each dimension, and concatenations as one ``cat``."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import (
    arguments,
    calls_of,
    insert_call,
    is_dense,
    is_static,
    reads_strides,
    replace,
    same_sizes,
    tensor_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable


aten = torch.ops.aten


@frozen_dataclass
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
    sizes = SizeNodes(node.graph).of_all(shape)
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


@frozen_dataclass
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


def _slice(source: fx.Node, item: int) -> _Part | None:
    """Return the slice that is an item of a split into parts of one size, or of several."""
    tensor, sizes, dim = arguments(source)
    several, value = isinstance(sizes, (list, tuple)), tensor_of(tensor)
    whole = None if value is None else value.shape[dim]
    if value is None or type(whole) is not int or len(source.meta["val"]) == 0:
        return None
    if not is_static(sizes if several else [sizes]):
        return None
    start, size = (sum(sizes[:item]), sizes[item]) if several else (item * sizes, sizes)
    return aten.slice.Tensor, (tensor, dim % value.dim(), start, min(start + size, whole))


def _select(source: fx.Node, item: int) -> _Part:
    tensor, dim = arguments(source)
    return aten.select.int, (tensor, dim % tensor.meta["val"].dim(), item)


_PARTS: dict[object, Callable[[fx.Node, int], _Part | None]] = {
    aten.split_with_sizes.default: _slice,
    aten.split.Tensor: _slice,
    aten.unbind.int: _select,
}


@frozen_dataclass
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
            values = [tensor_of(one) for one in (source, places)]
            if all(value is not None and value.dim() > 0 and is_dense(value) for value in values):
                node.target, node.kwargs = aten.index.Tensor, {}
                node.args = (source, [*[None] * sum(dims), places])
                modified = True
        return PassResult(graph_module, modified)


@frozen_dataclass
class Concatenations(Pass):
    """Merge a ``cat`` of ``cat`` along the same dimension, and rewrite a ``cat`` of ``unsqueeze`` like torch's stack.

    That is a ``cat`` of the tensors themselves and one ``reshape``; along a new last dimension torch concatenates
    reshapes as well. A ``cat`` with other users is unchanged, and so is one that changes the dtype, where chained casts
    may round twice.
    """

    name: ClassVar[str] = "concatenations"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place. Merged calls are left for dead code elimination."""
        modified, sizes = False, SizeNodes(graph_module.graph)
        for node in calls_of(graph_module.graph, (aten.cat.default,)):
            if any(map(reads_strides, node.users)):
                continue
            # Concatenations among the operands are replaced by their own operands.
            tensors, dim = _operands(node)
            joined: list[fx.Node] = []
            for one in tensors:
                is_part = one.target is aten.cat.default and len(one.users) == 1
                inner, along = _operands(one) if is_part else ([], dim)
                value = one.meta["val"]
                same_dtype = all(part.meta["val"].dtype is value.dtype for part in inner)
                is_part = is_part and same_dtype and along == dim and value.dim() == node.meta["val"].dim()
                joined += inner if is_part else [one]
            if len(joined) != len(tensors):
                node.args, node.kwargs, modified = (joined, dim), {}, True
            if _is_of_reshapes(node):
                modified |= _stack(node, sizes)
        return PassResult(graph_module, modified or sizes.changed)


def _operands(node: fx.Node) -> tuple[list[fx.Node], int]:
    tensors, dim = arguments(node)
    return list(tensors), dim % max(node.meta["val"].dim(), 1)


def _is_of_reshapes(node: fx.Node) -> bool:
    """Return whether tensors are joined along a dimension of size 1 added by a reshape, which is not the last."""
    tensors, dim = _operands(node)
    rank = node.meta["val"].dim()
    if len(tensors) < 2 or dim >= rank - 1:
        return False
    return all(
        one.target is aten.reshape.default
        and (value := tensor_of(one)) is not None
        and value.dim() == rank
        and type(value.shape[dim]) is int
        and value.shape[dim] == 1
        for one in tensors
    )


def _stack(node: fx.Node, sizes: SizeNodes) -> bool:
    """Rewrite a concatenation as a reshape of one of tensors without its dimension; return whether it was possible."""
    tensors, dim = _operands(node)
    made = node.meta["val"]
    single = list(made.shape)
    del single[dim]
    outer, inner = sizes.of_all(made.shape), sizes.of_all(single)
    if outer is None or inner is None:
        return False
    shape = [*single[:dim], len(tensors) * single[dim], *single[dim + 1 :]]
    bare: list[Any] = []
    for one in tensors:
        base: Any = one.args[0]  # itself if it already has the shape
        if not same_sizes(base.meta["val"].shape, single):
            base = insert_call(one, aten.reshape.default, (base, inner), one.meta["val"].new_empty(single))
        bare.append(base)
    joined = insert_call(node, aten.cat.default, (bare, dim), made.new_empty(shape))
    node.target, node.args, node.kwargs = aten.reshape.default, (joined, outer), {}
    if _is_of_reshapes(joined):
        _stack(joined, sizes)
    return True
