"""Concatenations, stacks and concatenations of concatenations as one ``cat``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import arguments, calls_of, insert_call, reads_strides, same_sizes, tensor_of

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
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
        modified, sizes = False, None
        for node in calls_of(graph_module.graph, (aten.cat.default,)):
            if any(map(reads_strides, node.users)):
                continue
            modified |= _join(node)
            if _is_of_reshapes(node):
                sizes = sizes or SizeNodes(graph_module.graph)
                modified |= _stack(node, sizes)
        return PassResult(graph_module, modified or bool(sizes and sizes.changed))


def _operands(node: fx.Node) -> tuple[list[fx.Node], int]:
    tensors, dim = arguments(node)
    return list(tensors), dim % max(node.meta["val"].dim(), 1)


def _join(node: fx.Node) -> bool:
    """Replace concatenations among a concatenation's operands by their own operands."""
    tensors, dim = _operands(node)
    joined = [part for one in tensors for part in (_operands(one)[0] if _is_part(one, node, dim) else [one])]
    if len(joined) == len(tensors):
        return False
    node.args, node.kwargs = (joined, dim), {}
    return True


def _is_part(one: fx.Node, node: fx.Node, dim: int) -> bool:
    if one.target is not aten.cat.default or len(one.users) != 1:
        return False
    inner, along = _operands(one)
    value = one.meta["val"]
    same_dtype = all(part.meta["val"].dtype is value.dtype for part in inner)
    return same_dtype and along == dim and value.dim() == node.meta["val"].dim()


def _is_of_reshapes(node: fx.Node) -> bool:
    """Return whether tensors are joined along a dimension of size 1 added by a reshape, which is not the last."""
    tensors, dim = _operands(node)
    rank = node.meta["val"].dim()
    if len(tensors) < 2 or dim >= rank - 1:
        return False
    return all(
        one.target is aten.reshape.default and (value := tensor_of(one)) is not None and _is_single(value, dim, rank)
        for one in tensors
    )


def _is_single(value: torch.Tensor, dim: int, rank: int) -> bool:
    return value.dim() == rank and type(value.shape[dim]) is int and value.shape[dim] == 1


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
    bare = [_without(one, inner, single) for one in tensors]
    joined = insert_call(node, aten.cat.default, (bare, dim), made.new_empty(shape))
    node.target, node.args, node.kwargs = aten.reshape.default, (joined, outer), {}
    if _is_of_reshapes(joined):
        _stack(joined, sizes)
    return True


def _without(node: fx.Node, sizes: list[Any], shape: list[Any]) -> fx.Node:
    """Return a reshape's operand in a shape: itself if it already has that shape."""
    base: Any = node.args[0]
    if same_sizes(base.meta["val"].shape, shape):
        return base  # type: ignore[no-any-return]  # its first argument is a tensor
    return insert_call(node, aten.reshape.default, (base, sizes), node.meta["val"].new_empty(shape))
