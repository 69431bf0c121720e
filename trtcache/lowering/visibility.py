"""Who can tell where in memory a result lies, and how it is laid out."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from trtcache.lowering.rewriting import makes_view

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten

# They look at strides, or want them dense: what they are given must stay laid out as it was.
_STRIDE_READERS = frozenset(
    {
        *(aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default),
        *(aten.view.dtype, aten.view_copy.dtype, aten.view_as_complex.default, aten.view_as_complex_copy.default),
    }
)
_NAMESPACES = frozenset({"aten", "prims", "_operator", "math"})


def reads_strides(node: fx.Node) -> bool:
    """Say whether a node may give other results for equal tensors in another layout; custom operators may."""
    if node.op != "call_function" or node.target in _STRIDE_READERS:
        return node.op == "call_function"
    namespace = getattr(node.target, "namespace", None) or getattr(node.target, "__module__", None)
    return namespace not in _NAMESPACES


def is_returned(node: fx.Node) -> bool:
    """Say whether the output shows the memory of a node, itself or a view of it."""
    return any(shows(user) for user in node.users)


def shows(user: fx.Node) -> bool:
    """Say whether a user is the output, or a view that the output shows."""
    return user.op == "output" or (is_view(user) and is_returned(user))


def is_view(node: fx.Node) -> bool:
    """Say whether a node may share the memory of what it is given; one of several views is as they are."""
    if node.target is operator.getitem:
        return is_view(node.args[0])  # type: ignore[arg-type]  # operators give tuples, as nodes
    return node.target is aten.reshape.default or makes_view(node.target)
