"""Visibility of a result's memory and layout to callers and operators."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch

from trtcache.lowering.rewriting import makes_view

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten

# They read strides, or require dense ones: the layout of their arguments must not change.
_STRIDE_READERS = frozenset(
    {
        *(aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default),
        *(aten.view.dtype, aten.view_copy.dtype, aten.view_as_complex.default, aten.view_as_complex_copy.default),
    }
)
_NAMESPACES = frozenset({"aten", "prims", "_operator", "math"})


def reads_strides(node: fx.Node) -> bool:
    """Return whether a node's result may depend on the layout of its arguments; custom operators' may."""
    if node.op != "call_function" or node.target in _STRIDE_READERS:
        return node.op == "call_function"
    namespace = getattr(node.target, "namespace", None) or getattr(node.target, "__module__", None)
    return namespace not in _NAMESPACES


def is_returned(node: fx.Node) -> bool:
    """Return whether the output exposes the memory of a node, itself or through a view."""
    return any(shows(user) for user in node.users)


def shows(user: fx.Node) -> bool:
    """Return whether a user is the output, or a view that the output exposes."""
    return user.op == "output" or (is_view(user) and is_returned(user))


def is_view(node: fx.Node) -> bool:
    """Return whether a node may share the memory of its argument; an item of several views does as they do."""
    if node.target is operator.getitem:
        return is_view(node.args[0])  # type: ignore[arg-type]  # operators return tuples as nodes
    return node.target is aten.reshape.default or makes_view(node.target)
