"""Arithmetic in canonical form, where another form gives the same bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.lowering.arguments import arguments
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.commutative import may_cross
from trtcache.lowering.rewriting import calls_of, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

aten = torch.ops.aten

_Call = tuple[Any, tuple[Any, ...]]

# What torch's kernels compute for these exponents (PowKernel.cpp, PowKernel.cu); float16 has no kernels of its own.
_ROOTS = {0.5: aten.sqrt.default, -0.5: aten.rsqrt.default, -1.0: aten.reciprocal.default}
_WHOLE = frozenset({torch.float32, torch.float64})
_NUMBERS = _WHOLE | {torch.float16, torch.bfloat16}

_BITWISE: dict[Any, Any] = {
    aten.logical_and.default: aten.bitwise_and.Tensor,
    aten.logical_or.default: aten.bitwise_or.Tensor,
    aten.logical_xor.default: aten.bitwise_xor.Tensor,
    aten.logical_not.default: aten.bitwise_not.default,
}
_FARTHEST_EXPONENT = 14
"""Powers of two up to this exponent, and their reciprocals, are exact in every floating-point dtype."""


@dataclass(frozen=True, slots=True)
class Arithmetic(Pass):
    """Rewrite ``x ** 2`` to ``x * x``, ``x / 2`` to ``x * 0.5``, ``x - 1`` to ``x + -1``, ``x + -y`` to ``x - y``.

    Also roots and reciprocals written as powers, ``x * -1`` to ``-x``, a clamp of a clamp to one, hardtanh to clamp,
    ``x != x`` to ``isnan``, and logic on booleans to bitwise operators. Only rewrites that IEEE arithmetic, or torch's
    own kernels, compute bitwise equally are done: division by three is not a product.
    """

    name: ClassVar[str] = "arithmetic"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified = False
        for node in calls_of(graph_module.graph, _RULES):
            while node.target in _RULES and (call := _RULES[node.target](node)) is not None:
                node.target, node.args, node.kwargs = *call, {}
                modified = True
        return PassResult(graph_module, modified)


def _is_float_of(node: fx.Node, source: Any) -> bool:
    """Return whether a call's result is floating-point with the dtype of an operand."""
    made, value = tensor_of(node), tensor_of(source)
    return made is not None and value is not None and value.dtype is made.dtype and made.dtype.is_floating_point


def _power(node: fx.Node) -> _Call | None:
    x, exponent = arguments(node)
    if not _is_float_of(node, x):
        return None
    if exponent == 2:
        return aten.mul.Tensor, (x, x)
    root = _ROOTS.get(exponent) if node.meta["val"].dtype in _WHOLE else None
    return None if root is None else (root, (x,))


def _quotient(node: fx.Node) -> _Call | None:
    x, divisor = arguments(node)
    if not isinstance(divisor, float) or not _is_float_of(node, x):
        return None
    mantissa, exponent = math.frexp(divisor)
    if abs(mantissa) != 0.5 or abs(exponent) > _FARTHEST_EXPONENT:
        return None
    return aten.mul.Tensor, (x, 1 / divisor)


def _difference(node: fx.Node) -> _Call | None:
    x, other, factor = arguments(node)
    if isinstance(other, float) and factor == 1 and _is_float_of(node, x):
        return aten.add.Tensor, (x, -other)
    if factor == -1 and _is_float_of(node, x) and _is_float_of(node, other):
        return aten.add.Tensor, (x, other)
    return None


def _sum(node: fx.Node) -> _Call | None:
    x, other, factor = arguments(node)
    if factor == -1 and _is_float_of(node, x) and _is_float_of(node, other):
        return aten.sub.Tensor, (x, other)
    if factor != 1:
        return None
    if _is_negated(other) and _is_float_of(node, other):
        return aten.sub.Tensor, (x, other.args[0])
    if _is_negated(x) and _is_float_of(node, x) and (isinstance(other, float) or may_cross(x, other)):
        return aten.sub.Tensor, (other, x.args[0])
    return None


def _is_negated(operand: Any) -> bool:
    return getattr(operand, "target", None) is aten.neg.default


def _product(node: fx.Node) -> _Call | None:
    x, other = arguments(node)
    is_negation = isinstance(other, float) and other == -1 and _is_float_of(node, x)
    return (aten.neg.default, (x,)) if is_negation else None


def _clamp(node: fx.Node) -> _Call | None:
    x, least, most = arguments(node)
    if node.target is aten.hardtanh.default:
        return (aten.clamp.default, (x, least, most)) if _is_float_of(node, x) else None
    if least is not None or x.target is not aten.clamp.default:
        return None
    inner, least, bound = arguments(x)
    return (aten.clamp.default, (inner, least, most)) if bound is None else None


def _unequal(node: fx.Node) -> _Call | None:
    """Rewrite a comparison with itself: only NaN differs from itself."""
    x, other = arguments(node)
    value = tensor_of(x)
    is_number = value is not None and value.dtype in _NUMBERS
    return (aten.isnan.default, (x,)) if x is other and is_number else None


def _logic(node: fx.Node) -> _Call | None:
    operands = arguments(node)
    is_logic = all((value := tensor_of(one)) is not None and value.dtype is torch.bool for one in operands)
    return (_BITWISE[node.target], tuple(operands)) if is_logic else None


_RULES: dict[Any, Callable[[fx.Node], _Call | None]] = {
    aten.pow.Tensor_Scalar: _power,
    aten.div.Tensor: _quotient,
    aten.sub.Tensor: _difference,
    aten.add.Tensor: _sum,
    aten.mul.Tensor: _product,
    **dict.fromkeys((aten.clamp.default, aten.hardtanh.default), _clamp),
    aten.ne.Tensor: _unequal,
    **dict.fromkeys(_BITWISE, _logic),
}
