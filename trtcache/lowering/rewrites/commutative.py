"""Canonical operand order of sums, products and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from trtcache.lowering.arguments import arguments
from trtcache.lowering.contents import Content
from trtcache.lowering.order import nodes_in
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import calls_of, is_static, same_shape, same_sizes, tensor_of
from trtcache.lowering.text import operator_name

aten = torch.ops.aten

# The equivalent operator with swapped operands.
_CROSSED: dict[object, Any] = {
    **{
        target: target
        for target in (
            *(aten.add.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default),
            *(aten.eq.Tensor, aten.ne.Tensor, aten.bitwise_and.Tensor, aten.bitwise_or.Tensor),
            *(aten.bitwise_xor.Tensor, aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default),
        )
    },
    aten.lt.Tensor: aten.gt.Tensor,
    aten.gt.Tensor: aten.lt.Tensor,
    aten.le.Tensor: aten.ge.Tensor,
    aten.ge.Tensor: aten.le.Tensor,
}
_BEHIND = frozenset({aten.gt.Tensor, aten.ge.Tensor})
"""Comparisons that are swapped if their operands cannot be distinguished."""


@dataclass(frozen=True, slots=True)
class Commutative(Pass):
    """Rewrite ``b + a`` to ``a + b``, and ``b > a`` to ``a < b``: calls first, then inputs, weights and constants.

    Calls are ordered by operator, dtype and shape, then by their operands; two weights of one shape that are used alike
    keep their order. Complex numbers, operands on two devices, and operands whose layouts change the result's layout
    when swapped are unchanged. Of zeros, ``maximum`` may return the other one: in torch itself the position of an
    element decides which.
    """

    name: ClassVar[str] = "commutative"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Swap operands in place."""
        modified = False
        order = _Order(graph_module)
        for node in calls_of(graph_module.graph, _CROSSED):
            one, other, *factor = arguments(node)
            if factor not in ([], [1]) or not may_cross(one, other):
                continue
            sign = order.compare(one, other)
            if sign > 0 or (not sign and node.target in _BEHIND and one is not other):
                node.target, node.args, node.kwargs = _CROSSED[node.target], (other, one), {}
                modified = True
        return PassResult(graph_module, modified)


def may_cross(one: Any, other: Any) -> bool:
    """Return whether swapping two operands keeps dtype, device and layout of the result."""
    left, right = tensor_of(one), tensor_of(other)
    if left is None or right is None or left.device != right.device:
        return False
    if left.dtype.is_complex or right.dtype.is_complex:
        return False
    if same_shape(left, right) and same_sizes(left.stride(), right.stride()):
        return True
    return _is_in_order(left) and _is_in_order(right)


def _is_in_order(tensor: torch.Tensor) -> bool:
    """Return whether strides do not increase from one dimension to the next (TensorIterator::reorder_dimensions)."""
    if tensor.is_contiguous():
        return True
    strides = [step for step in tensor.stride() if type(step) is not int or step]
    return is_static(strides) and strides == sorted(strides, reverse=True)


class _Order:
    """Compare operands by structure, as deep as necessary."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self._graph_module = graph_module
        self._shallow: dict[fx.Node, tuple[int, str, str, str]] = {}

    def compare(self, one: fx.Node, other: fx.Node) -> int:
        """Return a number below, above or equal to zero; level by level, the first difference decides."""
        pairs, places = [(one, other)], ({one: 0}, {other: 0})
        for left, right in pairs:
            if left is right:
                continue
            sign = self._compare_calls(left, right)
            if sign:
                return sign
            for below in zip(nodes_in(arguments(left)), nodes_in(arguments(right)), strict=True):
                met = [known.get(used, -1) for known, used in zip(places, below, strict=True)]
                if met[0] != met[1]:
                    return _sign(*met)
                if met[0] < 0:
                    for known, used in zip(places, below, strict=True):
                        known[used] = len(pairs)
                    pairs.append(below)
        return 0

    def _compare_calls(self, left: fx.Node, right: fx.Node) -> int:
        shallow = _sign(self._shallow_key(left), self._shallow_key(right))
        return shallow or _sign(self._detail_key(left), self._detail_key(right))

    def _shallow_key(self, node: fx.Node) -> tuple[int, str, str, str]:
        known = self._shallow.get(node)
        if known is None:
            known = self._shallow[node] = (*_rank_and_name(node), *_dtype_and_shape(node))
        return known

    def _detail_key(self, node: fx.Node) -> str:
        if node.op == "get_attr":
            content = node.meta.get("content") or Content.of(getattr(self._graph_module, str(node.target)))
            return str(content.digest)
        return "" if node.op == "placeholder" else repr(_plain(arguments(node)))


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _rank_and_name(node: fx.Node) -> tuple[int, str]:
    if node.op == "call_function":
        return 0, operator_name(node.target)
    if "input" in node.meta:
        return 1, f"{node.meta['input']:09d}"
    return (3 if node.op == "get_attr" else 2), ""


def _dtype_and_shape(node: fx.Node) -> tuple[str, str]:
    """Return dtype and shape; symbolic sizes are all alike, since their names have no meaning."""
    value = tensor_of(node)
    return ("", "") if value is None else (str(value.dtype), repr(_plain(list(value.shape))))


def _plain(argument: Any) -> Any:
    """Return an argument with placeholders for nodes and symbolic sizes."""
    if isinstance(argument, fx.Node):
        return "node"
    if isinstance(argument, (list, tuple)):
        return [_plain(one) for one in argument]
    if isinstance(argument, dict):
        return {name: _plain(one) for name, one in sorted(argument.items())}
    if isinstance(argument, slice):
        return "slice", _plain((argument.start, argument.stop, argument.step))
    return "size" if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)) else argument
