"""Linear layers in one form: ``reshape`` to two dimensions, ``mm`` or ``addmm``, ``reshape``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import fx

from trtcache.lowering.arguments import arguments
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.sizes import SizeNodes
from trtcache.lowering.rewriting import calls_of, expression, insert_call, is_static, same_sizes, tensor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Linear(Pass):
    """Fuse a product and the addition of a vector, and make a batched product with one matrix an unbatched one.

    ``mm`` + ``add`` of a bias, behind a ``reshape`` or not, is ``addmm``; an expanded bias is the vector itself;
    ``bmm`` by an expanded matrix, or with a batch of one, is ``mm`` between reshapes. The bias must have the product's
    dtype and last dimension, and the product must have no other users. ``addmm`` with factors other than 1 is
    unchanged.
    """

    name: ClassVar[str] = "linear"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place; unused nodes are left for dead code elimination."""
        modified = False
        for target, rewrite in _REWRITES:
            for node in calls_of(graph_module.graph, (target,)):
                modified |= rewrite(node)
        return PassResult(graph_module, modified)


def _fuse(node: fx.Node) -> bool:
    left, right, alpha = arguments(node)
    if alpha != 1:
        return False
    for product, bias in ((left, right), (right, left)):
        made = _product(product, node)
        if made is not None and _fits(bias, made, node):
            _add_bias(node, made, bias)
            return True
    return False


def _product(value: Any, user: fx.Node) -> fx.Node | None:
    """Return the ``mm`` of an operand, behind a reshape that keeps its columns or not, if it has no other users."""
    made = tensor_of(value)
    if made is None or len(value.users) != 1 or not same_sizes(made.shape, user.meta["val"].shape):
        return None
    if value.target is aten.mm.default:
        return value  # type: ignore[no-any-return]  # a node, since it has a tensor
    source = value.args[0] if value.target is aten.reshape.default else None
    if not isinstance(source, fx.Node) or source.target is not aten.mm.default or len(source.users) != 1:
        return None
    return source if same_sizes(made.shape[-1:], source.meta["val"].shape[1:]) else None


def _fits(bias: Any, product: fx.Node, node: fx.Node) -> bool:
    """Return whether an operand is a vector, possibly with leading ones, as long as the product has columns."""
    value, made = tensor_of(bias), product.meta["val"]
    if value is None or value.dim() == 0 or value.device != made.device:
        return False
    if not value.dtype == made.dtype == node.meta["val"].dtype:
        return False
    ones = all(expression(size) == 1 for size in value.shape[:-1])
    return (
        ones
        and is_static(value.shape)
        and same_sizes(value.shape[-1:], made.shape[1:])
        and value.dim() <= node.meta["val"].dim()
    )


def _add_bias(node: fx.Node, product: fx.Node, bias: fx.Node) -> None:
    made = product.meta["val"]
    vector = _vector(bias, node)
    if same_sizes(made.shape, node.meta["val"].shape):
        node.target, node.args, node.kwargs = aten.addmm.default, (vector, *product.args), {}
        return
    (reshape,) = product.users
    fused = insert_call(node, aten.addmm.default, (vector, *product.args), made)
    node.target, node.args, node.kwargs = aten.reshape.default, (fused, reshape.args[1]), {}


def _vector(bias: fx.Node, before: fx.Node) -> fx.Node:
    value = bias.meta["val"]
    if value.dim() == 1:
        return bias
    source = bias.args[0] if bias.target is aten.reshape.default else None
    if isinstance(source, fx.Node) and same_sizes(source.meta["val"].shape, value.shape[-1:]):
        return source
    return insert_call(before, aten.reshape.default, (bias, [value.shape[-1]]), value.reshape(value.shape[-1:]))


def _shorten_bias(node: fx.Node) -> bool:
    bias = node.args[0]
    if not isinstance(bias, fx.Node) or bias.target is not aten.expand.default:
        return False
    source: fx.Node = bias.args[0]  # type: ignore[assignment]  # its first argument is a tensor
    if not same_sizes(source.meta["val"].shape, node.meta["val"].shape[1:]):
        return False
    node.args = (source, *node.args[1:])
    return True


def _unbatch(node: fx.Node) -> bool:
    left, right = node.args[:2]
    matrix = _matrix(right)
    if matrix is None or not isinstance(left, fx.Node):
        return False
    batch, rows, inner = left.meta["val"].shape
    columns = node.meta["val"].shape[2]
    sizes = None if is_static((batch, rows, inner, columns)) else SizeNodes(node.graph)
    flat = _explicit(sizes, (batch * rows, inner))
    shape = _explicit(sizes, (batch, rows, columns))
    if flat is None or shape is None:
        return False
    value = left.meta["val"].new_empty((batch * rows, inner))
    rows_ = insert_call(node, aten.reshape.default, (left, flat), value)
    if matrix is right:
        matrix = insert_call(node, aten.reshape.default, (right, [inner, columns]), value.new_empty((inner, columns)))
    product = insert_call(node, aten.mm.default, (rows_, matrix), value.new_empty((batch * rows, columns)))
    node.target, node.args = aten.reshape.default, (product, shape)
    return True


def _explicit(sizes: SizeNodes | None, shape: Sequence[Any]) -> list[Any] | None:
    return list(shape) if sizes is None else sizes.of_all(shape)


def _matrix(right: Any) -> fx.Node | None:
    """Return the matrix that a whole batch is multiplied by; the operand itself if the batch is one."""
    value = tensor_of(right)
    if value is None:
        return None
    if right.target is aten.expand.default:
        source: fx.Node = right.args[0]
        shape = source.meta["val"].shape
        if same_sizes(shape, value.shape[1:]):
            return source
    return right if expression(value.shape[0]) == 1 and is_static(value.shape) else None


_REWRITES = ((aten.bmm.default, _unbatch), (aten.add.Tensor, _fuse), (aten.addmm.default, _shorten_bias))
