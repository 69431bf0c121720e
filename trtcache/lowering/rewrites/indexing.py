"""Passes that rewrite equal ways to index and to concatenate to one form."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.dimensions import clip_bound
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import (
    arguments,
    calls_of,
    feed_stride_readers,
    insert_call,
    is_contiguous,
    is_static,
    replace,
    same_sizes,
    tensor_of,
)

aten = torch.ops.aten


@frozen_dataclass
class Slices(Pass):
    """Rewrite ``select`` to a ``slice`` of length 1 and a ``reshape``, and merge slices of slices.

    ``x[1]``, ``x.unbind()[1]`` and ``x[1:2].squeeze(0)`` are then one program. A dimension of size 1 needs no slice. A
    select at a computed index, and slices of slices along a symbolic dimension, are unchanged.
    """

    name: ClassVar[str] = "slices"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place. Unused parts of a merged chain are left for dead code elimination."""
        modified, sizes = False, SizeNodes(graph_module.graph)
        for node in calls_of(graph_module.graph, (aten.select.int,)):
            modified |= _select_to_slice(node, sizes)
        for node in calls_of(graph_module.graph, (aten.slice.Tensor,)):
            modified |= _merge_slices(node)
        return PassResult(graph_module, modified or sizes.changed)


def _select_to_slice(node: fx.Node, size_nodes: SizeNodes) -> bool:
    source, dim, index = arguments(node)
    if type(index) is not int:
        return False
    sizes = size_nodes.of_all(node.meta["val"].shape)
    if sizes is None:
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


def _merge_slices(node: fx.Node) -> bool:
    source, dim, start, _, step = arguments(node)
    if source.target is not aten.slice.Tensor:
        return False
    inner, inner_dim, inner_start, _, inner_step = arguments(source)
    result, middle, original = tensor_of(node), tensor_of(source), tensor_of(inner)
    if result is None or middle is None or original is None or dim % result.dim() != inner_dim % result.dim():
        return False
    dim %= result.dim()
    size, middle_size, original_size = sizes = (result.shape[dim], middle.shape[dim], original.shape[dim])
    if not is_static(sizes) or not is_static((start or 0, inner_start or 0)):
        return False
    first = clip_bound(inner_start or 0, original_size) + clip_bound(start or 0, middle_size) * inner_step
    end = first + (size - 1) * step * inner_step + 1 if size else first
    node.args = (inner, dim, first, end, step * inner_step)
    node.kwargs = {}
    return True


_Call = tuple[Any, tuple[Any, ...]]
"""An operator and its arguments."""


@frozen_dataclass
class Tuples(Pass):
    """Rewrite items of splits, of unbinds, and of tuples that are arguments in the graph.

    An item of a split becomes a ``slice``, an item of an unbind a ``select``, and an item of such a tuple the node at
    that place. Other tuples are results of operators that compute several things at once; those are unchanged,
    and so are splits by symbolic sizes.
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
            rewrite = _ITEM_REWRITES.get(source.target)
            call = rewrite(source, item) if rewrite is not None else None
            if call is not None:
                node.target, node.args = call
                modified = True
        return PassResult(graph_module, modified)


def _split_item_to_slice(source: fx.Node, item: int) -> _Call | None:
    """Return the slice that is an item of a split; None if sizes are symbolic, or there is no item.

    ``split`` has one size, and ``split_with_sizes`` a list.
    """
    tensor, sizes, dim = arguments(source)
    has_list, value = isinstance(sizes, (list, tuple)), tensor_of(tensor)
    total = None if value is None else value.shape[dim]
    if value is None or type(total) is not int or len(source.meta["val"]) == 0:
        return None
    if not is_static(sizes if has_list else [sizes]):
        return None
    item = range(len(source.meta["val"]))[item]  # a negative one counts from the end
    start, size = (sum(sizes[:item]), sizes[item]) if has_list else (item * sizes, sizes)
    return aten.slice.Tensor, (tensor, dim % value.dim(), start, min(start + size, total))


def _unbind_item_to_select(source: fx.Node, item: int) -> _Call:
    tensor, dim = arguments(source)
    return aten.select.int, (tensor, dim % tensor.meta["val"].dim(), item)


_ITEM_REWRITES: dict[object, Callable[[fx.Node, int], _Call | None]] = {
    aten.split_with_sizes.default: _split_item_to_slice,
    aten.split.Tensor: _split_item_to_slice,
    aten.unbind.int: _unbind_item_to_select,
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
            if node.target is aten.embedding.default:
                (source, ids, *_), dim = arguments(node), 0
            else:
                source, dim, ids = arguments(node)
            values = [tensor_of(source), tensor_of(ids)]
            if all(value is not None and value.dim() > 0 and is_contiguous(value) for value in values):
                node.target, node.kwargs = aten.index.Tensor, {}
                node.args = (source, [*[None] * (dim % source.meta["val"].dim()), ids])
                modified = True
        return PassResult(graph_module, modified)


@frozen_dataclass
class Concatenations(Pass):
    """Merge a ``cat`` of ``cat`` along one dimension, and rewrite a ``cat`` of ``unsqueeze``.

    A ``cat`` of ``unsqueeze`` becomes a ``cat`` of the tensors themselves and one ``reshape``, as ``torch.stack`` is
    lowered; along a new last dimension it stays a ``cat`` of reshapes. An inner ``cat`` with other users is unchanged,
    and so is one that changes the dtype, since chained casts may round twice.
    """

    name: ClassVar[str] = "concatenations"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place. Merged calls are left for dead code elimination."""
        modified, sizes, read_by_strides = False, SizeNodes(graph_module.graph), feed_stride_readers(graph_module.graph)
        for node in calls_of(graph_module.graph, (aten.cat.default,)):
            if node in read_by_strides:  # an operator after it reads strides, which may differ
                continue
            # Concatenations among the operands are replaced by their own operands.
            tensors, dim = _operands(node)
            joined: list[fx.Node] = []
            for tensor in tensors:
                is_cat = tensor.target is aten.cat.default and len(tensor.users) == 1
                inner, inner_dim = _operands(tensor) if is_cat else ([], dim)
                value = tensor.meta["val"]
                same_dtype = all(operand.meta["val"].dtype is value.dtype for operand in inner)
                is_merged = is_cat and same_dtype and inner_dim == dim and value.dim() == node.meta["val"].dim()
                joined += inner if is_merged else [tensor]
            if len(joined) != len(tensors):
                node.args, node.kwargs, modified = (joined, dim), {}, True
            if _joins_reshapes(node):
                modified |= _stack(node, sizes)
        return PassResult(graph_module, modified or sizes.changed)


def _operands(node: fx.Node) -> tuple[list[fx.Node], int]:
    tensors, dim = arguments(node)
    return list(tensors), dim % max(node.meta["val"].dim(), 1)


def _joins_reshapes(node: fx.Node) -> bool:
    """Return whether every operand is a reshape, and the joined dimension has size 1 and is not the last."""
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
    """Join the tensors without the added dimension, and reshape the result; return whether it was possible."""
    tensors, dim = _operands(node)
    result = node.meta["val"]
    operand_shape = list(result.shape)
    del operand_shape[dim]
    result_sizes, operand_sizes = sizes.of_all(result.shape), sizes.of_all(operand_shape)
    if result_sizes is None or operand_sizes is None:
        return False
    shape = [*operand_shape[:dim], len(tensors) * operand_shape[dim], *operand_shape[dim + 1 :]]
    operands: list[Any] = []
    for tensor in tensors:
        base: Any = tensor.args[0]  # used as it is if it already has the shape
        if not same_sizes(base.meta["val"].shape, operand_shape):
            base = insert_call(
                tensor, aten.reshape.default, (base, operand_sizes), tensor.meta["val"].new_empty(operand_shape)
            )
        operands.append(base)
    joined = insert_call(node, aten.cat.default, (operands, dim), result.new_empty(shape))
    node.target, node.args, node.kwargs = aten.reshape.default, (joined, result_sizes), {}
    if _joins_reshapes(joined):
        _stack(joined, sizes)
    return True
