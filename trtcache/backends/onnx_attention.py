"""Attention as ``torch.onnx`` exports it rightly: of four dimensions, with a visible key in every row of its mask.

torch returns zeros for a row whose mask hides every key. In ONNX such a row would be a mean of hidden values, or NaN.
So these rows see every key in the exported attention, and their results are set to zero after it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trtcache.lowering.rewriting import arguments, calls_of, insert_call, replace, set_arguments

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten

_ATTENTION = aten.scaled_dot_product_attention.default
_DIMENSIONS = 4


def why_no_attention(node: fx.Node) -> str | None:
    """Return why a call of attention has no such form, or None; None as well for every other operator."""
    target = node.target
    if target is _ATTENTION:
        count = node.meta["val"].dim()
        return f"torch has no ONNX for attention of {count} dimensions" if count > _DIMENSIONS else None
    if not str(target).startswith("aten._scaled_dot_product_"):
        return None
    # One of torch's kernels, chosen before the program was exported. Only the first of its results is exported.
    names = [one.name for one in target._schema.arguments]  # type: ignore[union-attr]  # an operator, by its name
    given = dict(zip(names, arguments(node), strict=False))
    if given.get("attn_mask") is not None or given.get("attn_bias") is not None:
        return f"torch's ONNX for {target} is wrong for a row whose mask hides every key"
    if any(user.args[1] != 0 for user in node.users):
        return f"torch's ONNX for {target} has only its first result"
    return None


def rewrite_attention(graph: fx.Graph) -> None:
    """Rewrite the calls of attention in a graph in place."""
    for node in calls_of(graph, [_ATTENTION]):
        query, key, value, mask, *options = arguments(node)
        hidden = None if mask is None else _insert_hidden_rows(node, mask)
        if hidden is not None:
            visible, option = (aten.logical_or.default, ()) if _is_bool(mask) else (aten.masked_fill.Scalar, (0.0,))
            mask = insert_call(node, visible, (mask, hidden, *option), mask.meta["val"])
        tensors = [_insert_dimensions(node, one) for one in (query, key, value)]
        result = node.meta["val"]
        whole = result[(None,) * (_DIMENSIONS - result.dim())]
        attention = made = insert_call(node, _ATTENTION, (), whole)
        attention.meta = {**node.meta, **attention.meta}
        set_arguments(attention, [*tensors, mask, *options])
        for _ in range(_DIMENSIONS - result.dim()):
            made = insert_call(node, aten.squeeze.dim, (made, 0), made.meta["val"][0])
        if hidden is not None:
            made = insert_call(node, aten.masked_fill.Scalar, (made, hidden, 0.0), result)
        replace(node, made)


def _is_bool(mask: fx.Node) -> bool:
    return bool(mask.meta["val"].dtype is torch.bool)


def _insert_hidden_rows(before: fx.Node, mask: fx.Node) -> fx.Node:
    """Insert what computes which rows have no visible key, with one column."""
    seen, value = mask, mask.meta["val"]
    if not _is_bool(mask):
        seen = insert_call(before, aten.ne.Scalar, (mask, -math.inf), value.ne(-math.inf))
    rows = seen.meta["val"].any(-1, keepdim=True)
    return insert_call(
        before, aten.logical_not.default, (insert_call(before, aten.any.dim, (seen, -1, True), rows),), rows
    )


def _insert_dimensions(before: fx.Node, node: fx.Node) -> fx.Node:
    for _ in range(_DIMENSIONS - node.meta["val"].dim()):
        node = insert_call(before, aten.unsqueeze.default, (node, 0), node.meta["val"].unsqueeze(0))
    return node
