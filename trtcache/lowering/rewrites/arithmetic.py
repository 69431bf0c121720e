"""Arithmetic and casts in canonical form, where another form gives the same bits."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.interface import Content
from trtcache.lowering.operators import operator_name
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import (
    arguments,
    calls_of,
    feed_stride_readers,
    is_contiguous,
    is_returned,
    is_static,
    nodes_in,
    replace,
    same_shape,
    same_sizes,
    tensor_of,
)

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


@frozen_dataclass
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


def _scale(node: fx.Node) -> _Call | None:
    x, factor = arguments(node)
    if not isinstance(factor, float) or not _is_float_of(node, x):
        return None
    if node.target is aten.mul.Tensor:
        return (aten.neg.default, (x,)) if factor == -1 else None
    mantissa, exponent = math.frexp(factor)
    if abs(mantissa) != 0.5 or abs(exponent) > _FARTHEST_EXPONENT:
        return None
    return aten.mul.Tensor, (x, 1 / factor)


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
    x_negated, other_negated = (getattr(one, "target", None) is aten.neg.default for one in (x, other))
    if any(value is not None and value.dtype is torch.bool for value in map(tensor_of, (x, other))):
        return None  # torch does not subtract from booleans
    if other_negated and _is_float_of(node, other):
        return aten.sub.Tensor, (x, other.args[0])
    if x_negated and _is_float_of(node, x) and (isinstance(other, float) or may_cross(x, other)):
        return aten.sub.Tensor, (other, x.args[0])
    return None


def _clamp(node: fx.Node) -> _Call | None:
    x, least, most = arguments(node)
    if node.target is aten.hardtanh.default:
        return (aten.clamp.default, (x, least, most)) if _is_float_of(node, x) else None
    if least is not None or x.target is not aten.clamp.default:
        return None
    inner, least, bound = arguments(x)
    return (aten.clamp.default, (inner, least, most)) if bound is None else None


def _logic(node: fx.Node) -> _Call | None:
    operands = arguments(node)
    dtypes = {None if (value := tensor_of(one)) is None else value.dtype for one in operands}
    if node.target is aten.ne.Tensor:  # only NaN differs from itself
        return (aten.isnan.default, (operands[0],)) if operands[0] is operands[1] and dtypes <= _NUMBERS else None
    return (_BITWISE[node.target], tuple(operands)) if dtypes == {torch.bool} else None


_RULES: dict[Any, Callable[[fx.Node], _Call | None]] = {
    aten.pow.Tensor_Scalar: _power,
    **dict.fromkeys((aten.div.Tensor, aten.mul.Tensor), _scale),
    aten.sub.Tensor: _difference,
    aten.add.Tensor: _sum,
    **dict.fromkeys((aten.clamp.default, aten.hardtanh.default), _clamp),
    **dict.fromkeys((*_BITWISE, aten.ne.Tensor), _logic),
}


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


@frozen_dataclass
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
    if left.dtype != right.dtype and (left.dim() == 0) != (right.dim() == 0):
        return False  # torch converts a second operand without dimensions only after the operation
    if same_shape(left, right) and same_sizes(left.stride(), right.stride()):
        return True
    return _is_in_order(left) and _is_in_order(right)


def _is_in_order(tensor: torch.Tensor) -> bool:
    """Return whether strides do not increase from one dimension to the next (TensorIterator::reorder_dimensions)."""
    if is_contiguous(tensor):
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
            sign = _sign(self._shallow_key(left), self._shallow_key(right))
            sign = sign or _sign(self._detail_key(left), self._detail_key(right))
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

    def _shallow_key(self, node: fx.Node) -> tuple[int, str, str, str]:
        """Return kind and name, dtype and shape; symbolic sizes are all alike, since their names have no meaning."""
        known = self._shallow.get(node)
        if known is None:
            rank, name, value = 3 if node.op == "get_attr" else 2, "", tensor_of(node)
            if node.op == "call_function":
                rank, name = 0, operator_name(node.target)
            elif "input" in node.meta:
                rank, name = 1, f"{node.meta['input']:09d}"
            described = ("", "") if value is None else (str(value.dtype), repr(_plain(list(value.shape))))
            known = self._shallow[node] = (rank, name, *described)
        return known

    def _detail_key(self, node: fx.Node) -> str:
        if node.op == "get_attr":
            content = node.meta.get("content") or Content.of(getattr(self._graph_module, str(node.target)))
            return str(content.digest)
        return "" if node.op == "placeholder" else repr(_plain(arguments(node)))


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


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


_cast = aten._to_copy.default
_PROMOTING = frozenset(
    {
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor),
        *(aten.maximum.default, aten.minimum.default, aten.eq.Tensor, aten.ne.Tensor),
        *(aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor),
    }
)
"""Operators that promote two tensors to one dtype before they compute."""


@frozen_dataclass
class Casts(Pass):
    """Skip a cast whose result is cast again, if the intermediate dtype represents every value of the first one.

    ``f16 -> f32 -> f16`` is removed, ``bf16 -> f32 -> f64`` is one cast, and ``f32 -> f16 -> f32`` stays: it rounds.
    Only casts that change nothing but the dtype are merged. A pair that cancels becomes a ``clone`` if a result is
    returned, or if it has another layout and an operator reads strides. A cast that equals an operator's own type
    promotion is removed, except for another layout that is read.
    """

    name: ClassVar[str] = "casts"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Merge in place; skipped casts are left for dead code elimination."""
        modified, feeding = False, feed_stride_readers(graph_module.graph)
        for node in graph_module.graph.find_nodes(op="call_function", target=_cast):
            source = node.args[0]
            if not (_changes_dtype_only(node) and source.target is _cast and _changes_dtype_only(source)):
                continue
            first = source.args[0]
            dtype = first.meta["val"].dtype
            if not holds(source.meta["val"].dtype, dtype):
                continue
            if node.meta["val"].dtype is not dtype:
                node.replace_input_with(source, first)
            elif is_returned(node) or (node in feeding and not _same_layout(node, first)):
                node.target, node.args, node.kwargs = torch.ops.aten.clone.default, (first,), {}
            else:
                replace(node, first)
            modified = True
        for node in graph_module.graph.find_nodes(op="call_function", target=_cast):
            for user in list(node.users):
                is_read = user in feeding and not _same_layout(node, node.args[0])
                if _changes_dtype_only(node) and _promotes(user, node) and not is_read:
                    user.replace_input_with(node, node.args[0])
                    modified = True
        return PassResult(graph_module, modified)


def _same_layout(node: fx.Node, other: fx.Node) -> bool:
    return same_sizes(node.meta["val"].stride(), other.meta["val"].stride())


def _promotes(user: fx.Node, cast: fx.Node) -> bool:
    """Return whether an operator promotes an operand like its cast; the other operand must not be a cast too."""
    others: list[Any] = [one for one in user.args if one is not cast]
    if user.target not in _PROMOTING or len(others) != 1:
        return False
    source, other = tensor_of(cast.args[0]), tensor_of(others[0])
    if source is None or other is None or others[0].target is _cast or source.device != other.device:
        return False
    if source.dtype is torch.bool and user.target is aten.sub.Tensor:
        return False  # torch does not subtract booleans
    # A zero-dimensional tensor has lower priority in type promotion.
    have_dimensions = source.dim() > 0 and other.dim() > 0
    try:
        promoted = torch.result_type(source, other)
    except RuntimeError:  # float8 is not promoted
        return False
    return have_dimensions and promoted is cast.meta["val"].dtype


def _changes_dtype_only(node: fx.Node) -> bool:
    source, made = tensor_of(node.args[0]), tensor_of(node)
    if source is None or made is None:
        return False
    return source.device == made.device and source.layout == made.layout and not node.kwargs.get("memory_format")


@functools.cache
def holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Return whether a dtype represents every value of another."""
    if narrow is wide or wide is torch.float8_e8m0fnu:  # it has powers of two alone, without 0
        return narrow is wide
    if narrow is torch.bool:
        return True
    if wide is torch.bool or wide.is_complex or narrow.is_complex:
        return False
    if wide in {torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}:  # without infinity and -0.0, and torch's eps is wrong
        return False
    if wide.is_floating_point:
        return all(map(operator.ge, _precision(wide), _precision(narrow)))
    if narrow.is_floating_point:
        return False
    return torch.iinfo(wide).min <= torch.iinfo(narrow).min and torch.iinfo(wide).max >= torch.iinfo(narrow).max


def _precision(dtype: torch.dtype) -> tuple[float, float, float]:
    """Return the significant bits, how small a positive value is, and the largest value."""
    if dtype.is_floating_point:
        known = torch.finfo(dtype)
        return 1 - round(math.log2(known.eps)), -known.tiny * known.eps, known.max
    whole = torch.iinfo(dtype)
    return whole.bits - (whole.min < 0), -1.0, float(whole.max)
