"""Removal of operators that return their argument unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import fx

from trtcache.lowering.arguments import arguments
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import calls_of, replace, same_shape, same_sizes, tensor_of
from trtcache.lowering.visibility import is_returned, is_view, reads_strides, shows

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten


def _is_full(node: fx.Node) -> bool:
    """Return whether an expand or a slice returns a whole tensor, once."""
    source, made = tensor_of(node.args[0]), tensor_of(node)
    if source is None or made is None or not same_shape(source, made):
        return False
    return bool(node.target is aten.expand.default or arguments(node)[4] == 1)


def _is_plain_copy(node: fx.Node) -> bool:
    source, made = tensor_of(node.args[0]), tensor_of(node)
    return source is not None and made is not None and _kind(source) == _kind(made)


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (tensor.dtype, tensor.device, tensor.layout)


def _repeats_once(node: fx.Node) -> bool:
    source, repeats = arguments(node)
    return list(repeats) == [1] * source.meta["val"].dim()


def _is_evaluated(node: fx.Node) -> bool:
    _, probability, training = node.args
    return training is False or probability in (0, 0.0)


def _scales_by_one(node: fx.Node) -> bool:
    """Return whether a number is multiplied or divided by one, which keeps every bit."""
    factor = arguments(node)[1]
    return type(factor) in {int, float} and factor == 1 and _is_plain_copy(node)


def _always(_: fx.Node) -> bool:
    return True


_VIEWS: dict[Any, Callable[[fx.Node], bool]] = {
    **dict.fromkeys((aten.alias.default, aten.detach.default, aten.lift_fresh.default), _always),
    **dict.fromkeys((aten.expand.default, aten.slice.Tensor), _is_full),
}
_COPIES: dict[Any, Callable[[fx.Node], bool]] = {
    **dict.fromkeys((aten.clone.default, aten.contiguous.default, aten.lift_fresh_copy.default), _always),
    **dict.fromkeys((aten.alias_copy.default, aten.detach_copy.default), _always),
    aten._to_copy.default: _is_plain_copy,
    aten.cat.default: lambda node: len(node.args[0]) == 1,  # type: ignore[arg-type]  # a list, says the schema
    aten.repeat.default: _repeats_once,
    aten.dropout.default: _is_evaluated,
    aten.constant_pad_nd.default: lambda node: not any(node.args[1]),  # type: ignore[arg-type]
    **dict.fromkeys((aten.mul.Tensor, aten.div.Tensor), _scales_by_one),
    aten.flip.default: lambda node: not node.args[1],
}
_RULES = {**_VIEWS, **_COPIES}


@dataclass(frozen=True, slots=True)
class NoOps(Pass):
    """Remove clone, contiguous, alias, detach, dropout in eval mode, and casts, slices, factors without effect.

    A copy stays if it is visible: if it is returned, itself or through views, and its source is not a fresh tensor of
    the same layout; and if an operator uses it that reads strides, or is not torch's. Other arithmetic stays: ``x + 0``
    is not ``x`` for -0.0.
    """

    name: ClassVar[str] = "no_ops"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove in place."""
        modified = False
        for node in calls_of(graph_module.graph, _RULES):
            if not _RULES[node.target](node) or (node.target in _COPIES and _is_seen(node)):
                continue
            source = _source(node)
            if not same_sizes(source.meta["val"].stride(), node.meta["val"].stride()):
                _free_views(node)
            replace(node, source)
            modified = True
        return PassResult(graph_module, modified)


def _source(node: fx.Node) -> fx.Node:
    source: Any = node.args[0]
    return source[0] if isinstance(source, (list, tuple)) else source  # type: ignore[no-any-return]


def _free_views(node: fx.Node) -> None:
    """Convert views of a copy, recursively, to reshapes: its source may have an incompatible layout for a view."""
    for user in node.users:
        if user.op == "call_function" and is_view(user):
            if user.target is aten.view.default:
                user.target = aten.reshape.default
            _free_views(user)


def _is_seen(node: fx.Node) -> bool:
    """Return whether a caller can distinguish a copy from its source."""
    if any(map(reads_strides, node.users)):
        return True
    return is_returned(node) and not _is_fresh(_source(node), node)


def _is_fresh(source: fx.Node, copy: fx.Node) -> bool:
    """Return whether a tensor was just computed, has its copy's layout, and is not returned otherwise."""
    if source.op != "call_function" or is_view(source):
        return False
    if not same_sizes(source.meta["val"].stride(), copy.meta["val"].stride()):
        return False
    return not any(shows(user) for user in source.users if user is not copy)
