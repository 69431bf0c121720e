"""Selection of one part of a tensor instead of a tuple of all parts."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import fx

from trtcache.lowering.arguments import arguments
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import replace, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten

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
