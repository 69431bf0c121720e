"""Canonical arguments and reductions: dimensions, bounds, window sizes, numbers and dtypes."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.cpu import (
    EXTREMES,
    PRODUCTS,
    REMAINDERS,
    round_divisor,
    take_remainder,
    widen_bytes,
    widen_product,
)
from trtcache.lowering.rewriting import (
    arguments,
    calls_of,
    expression,
    insert_call,
    insert_cast,
    is_static,
    parameter_places,
    replace,
    same_sizes,
    set_arguments,
    tensor_of,
)

aten = torch.ops.aten

_DIM_NAMES = frozenset({"dim", "dims", "dim0", "dim1", "dim2", "axis", "axes", "axis0", "axis1", "dimension"})

# Dimensions of a reduction are unordered; an empty list means all dimensions.
_REDUCTIONS = frozenset(
    {
        *(aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.logsumexp.default),
        *(aten.var.correction, aten.std.correction, aten.var_mean.correction, aten.linalg_vector_norm.default),
    }
)
_UNORDERED = _REDUCTIONS | {aten.flip.default, aten.any.dims, aten.all.dims, aten.squeeze.dims}

# Their results have one dimension more than their operands.
_ADD_A_DIMENSION = frozenset(
    {aten.unsqueeze.default, aten.stack.default, aten.unsqueeze_copy.default, aten.diag_embed.default}
)

_OVERLOADS = {
    aten.sum.default: aten.sum.dim_IntList,
    aten.mean.default: aten.mean.dim,
    aten.max.default: aten.amax.default,
    aten.min.default: aten.amin.default,
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Scalar: aten.div.Tensor,
    aten.div.Scalar_mode: aten.div.Tensor_mode,
}
_WINDOWS = {
    **dict.fromkeys((aten.avg_pool1d.default, aten.max_pool1d.default), 1),
    **dict.fromkeys((aten.max_pool2d_with_indices.default, aten.avg_pool2d.default, aten.max_pool2d.default), 2),
    **dict.fromkeys((aten.max_pool3d_with_indices.default, aten.avg_pool3d.default, aten.max_pool3d.default), 3),
}
_WINDOW_NAMES = ("kernel_size", "stride", "padding", "dilation", "output_padding")

# Elementwise operators that use their numbers in the tensor's own floating-point dtype.
_SCALED = frozenset(
    {
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.div.Tensor_mode, aten.rsub.Scalar),
        *(aten.pow.Tensor_Scalar, aten.pow.Scalar, aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default),
        *(aten.fmod.Scalar, aten.remainder.Scalar, aten.masked_fill.Scalar, aten.constant_pad_nd.default),
        *(aten.eq.Scalar, aten.ne.Scalar, aten.lt.Scalar, aten.le.Scalar, aten.gt.Scalar, aten.ge.Scalar),
        *(aten.full.default, aten.full_like.default, aten.linalg_vector_norm.default, aten.leaky_relu.default),
        *(aten.hardtanh.default, aten.elu.default, aten.where.ScalarOther, aten.where.ScalarSelf),
    }
)
_NUMBERS = frozenset({"other", "self", "exponent", "min", "max", "value", "fill_value", "ord", "negative_slope"}) | {
    *("min_val", "max_val")
}
_FACTORS = frozenset({"alpha", "beta", "scale", "input_scale", "correction"})
_SCALED_BY_FLOAT = frozenset({aten.scaled_dot_product_attention.default})
_CLAMPS = frozenset({aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default})
_ANY_OR_ALL = frozenset(
    {*(aten.any.default, aten.any.dim, aten.any.dims), *(aten.all.default, aten.all.dim, aten.all.dims)}
)
_SEARCHES: dict[object, tuple[Any, int]] = {
    aten.bucketize.Scalar: (aten.bucketize.Tensor, 0),
    aten.searchsorted.Scalar: (aten.searchsorted.Tensor, 1),
}
"""Operator that searches a number -> that of a tensor, and the place of the number."""
_POWERS = frozenset({aten.pow.Tensor_Scalar, aten.pow.Scalar})
_REPLACED = _ANY_OR_ALL | _SEARCHES.keys() | REMAINDERS
_CORRECTED = frozenset({aten.var.correction, aten.std.correction, aten.var_mean.correction})
_REDUCED_DTYPES = frozenset(
    {
        *(aten.sum.dim_IntList, aten.mean.dim, aten.prod.default, aten.prod.dim_int, aten.cumsum.default),
        *(aten.cumprod.default, aten.linalg_vector_norm.default),
    }
)


@frozen_dataclass
class Dimensions(Pass):
    """Unify equal calls: ``softmax(x, -1)`` and ``softmax(x, 1)`` of a matrix, ``x * 2`` and ``x * 2.0``.

    Dimensions count from the front, and those of a reduction are sorted and explicit; slices and indices of a static
    dimension are within it; windows of convolution and pooling have a number for each dimension, and a stride; numbers
    next to floats are floats; a dtype, layout or device that equals the operator's default is explicit in factory
    functions and omitted elsewhere; attention's default scale is omitted, and so are arguments that only affect the
    gradient of an embedding. ``any`` and ``all`` over no dimension are ``x != 0``. What a varying bound clamps is cast
    to the result's dtype; in a power of integers, a number that is the base or varies is a tensor. On a CPU, extremes
    and products of bytes are computed in int32, and remainders of floats are made from ``fmod``.
    """

    name: ClassVar[str] = "dimensions"
    # Unchanged for casts, powers, searches and what cpu.py has: only programs that contain them get other keys.
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite arguments in place."""
        modified = False
        for node in graph_module.graph.nodes:
            if node.op != "call_function" or not (_rules(node.target) or node.target in _REPLACED):
                continue
            target = node.target
            if target in _OVERLOADS:
                _change_overload(node, _OVERLOADS[target])
            elif target in REMAINDERS:
                take_remainder(node)
            elif target in _ANY_OR_ALL and not _cast_truth(node) and _reduces_nothing(node):
                node.target, node.args, node.kwargs = aten.ne.Scalar, (node.args[0], 0), {}
            elif target in _POWERS:
                _take_tensors(node)
            elif target in _SEARCHES:
                _search_tensor(node)
            before = arguments(node)
            values = list(before)
            for rule in _rules(node.target):
                rule(node, values)
            if target is node.target and (
                all(map(operator.is_, before, values)) or all(map(_alike, before, values))  # the first is quicker
            ):
                continue
            set_arguments(node, values)
            modified = True
        return PassResult(graph_module, modified)


def _reduces_nothing(node: fx.Node) -> bool:
    """Return whether a call is ``x.any(())`` or ``x.all(())``; Inductor reduces all dimensions then (torch 2.13)."""
    if node.target not in {aten.any.dims, aten.all.dims}:
        return False
    dims = arguments(node)[1]
    return isinstance(dims, (list, tuple)) and not dims


def _cast_truth(node: fx.Node) -> bool:
    """Cast the result of ``any`` and ``all`` of uint8, which is uint8; Inductor's is bool (torch 2.13).

    Returns whether it did.
    """
    result, given = node.meta["val"], list(arguments(node))
    value = tensor_of(given[0])
    if value is None or value.dtype is not torch.uint8 or result.dtype is not torch.uint8:
        return False
    truth = insert_call(node, aten.ne.Scalar, (given[0], 0), value.to(torch.bool))
    if not _reduces_nothing(node):
        for rule in _rules(node.target):
            rule(node, given)
        truth = insert_call(node, node.target, (truth, *given[1:]), result.to(torch.bool))
    node.target, node.args, node.kwargs = aten._to_copy.default, (truth,), {"dtype": torch.uint8}
    return True


def _take_tensors(node: fx.Node) -> None:
    """Make a number in a power of integers a tensor, if it is the base or varies.

    Inductor computes powers of a number as floats, and cannot compile those with a varying number (torch 2.13).
    """
    result, given = node.meta["val"], arguments(node)
    place = next((place for place, one in enumerate(given) if not isinstance(tensor_of(one), torch.Tensor)), 0)
    is_constant_exponent = place == 1 and not isinstance(given[place], fx.Node)
    if is_constant_exponent or result.dtype.is_floating_point or result.dtype.is_complex:
        return
    base = given[place]
    if isinstance(base, int) and result.dtype is not torch.bool:  # it can be outside of the dtype's range, and wraps
        least, bits = torch.iinfo(result.dtype).min, torch.iinfo(result.dtype).bits
        base = (base - least) % 2**bits + least
    number = insert_call(node, aten.full.default, ([], base), result.new_empty(()))
    number.kwargs = {"dtype": result.dtype, "device": result.device}
    node.target, node.args = (
        aten.pow.Tensor_Tensor,
        tuple(number if at == place else one for at, one in enumerate(given)),
    )
    node.kwargs = {}


def _search_tensor(node: fx.Node) -> None:
    """Turn the searched number into a tensor; Inductor makes a constant of it, which packages lack (torch 2.13)."""
    target, place = _SEARCHES[node.target]
    number, boundaries = arguments(node)[place], tensor_of(arguments(node)[1 - place])
    if boundaries is None or isinstance(number, fx.Node):
        return
    dtype = torch.result_type(boundaries, number)
    made = insert_call(node, aten.full.default, ([], number), boundaries.new_empty((), dtype=dtype))
    made.kwargs = {"dtype": dtype, "device": boundaries.device}
    names = parameter_places(node.target)
    node.kwargs = {name: one for name, one in zip(names, arguments(node), strict=True) if names[name] > 1}
    node.target, node.args = target, (made, node.args[1]) if place == 0 else (node.args[0], made)


def _cast_clamped(node: fx.Node, values: list[Any]) -> None:
    """Cast what a varying bound clamps: Inductor keeps the dtype of integers, and truncates the bound (torch 2.13)."""
    given, result = tensor_of(values[0]), tensor_of(node)
    varies = any(isinstance(bound, fx.Node) for bound in values[1:])
    if varies and given is not None and result is not None and given.dtype is not result.dtype:
        values[0] = insert_cast(node, values[0], given.to(result.dtype))


def _alike(left: Any, right: Any) -> bool:
    """Return whether two arguments are the same; ``1`` and ``1.0`` are not."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_alike, left, right))
    return left is right or (type(left) is type(right) and bool(left == right))


def _change_overload(node: fx.Node, target: torch._ops.OpOverload) -> None:
    """Call an overload with the same arguments, and its additional ones by name."""
    names = parameter_places(node.target)
    node.kwargs = {name: value for name, value in zip(names, arguments(node), strict=True) if name != "self"}
    node.args = node.args[:1]
    if "dim" not in names and "dim" in parameter_places(target):
        node.kwargs = {"dim": [], **node.kwargs}
    node.target = target
    set_arguments(node, arguments(node))


@functools.cache
def _rules(target: object) -> tuple[Callable[[fx.Node, list[Any]], None], ...]:
    """Return the rules for calls of an operator, each of which modifies the list of arguments."""
    if target in _OVERLOADS:
        return _rules(_OVERLOADS[target]) or (lambda *_: None,)
    names = parameter_places(target)
    if getattr(target, "namespace", None) != "aten":
        return ()
    rules: list[tuple[bool, Callable[[fx.Node, list[Any]], None]]] = [
        (bool(_DIM_NAMES & set(names)), _count_from_front),
        (target in _UNORDERED, _sort_dims),
        (target is aten.slice.Tensor or target is aten.slice_scatter.default, _bound_slice),
        (target is aten.select.int or target is aten.select_scatter.default, _bound_index),
        (target is aten.convolution.default or target in _WINDOWS, _widen_windows),
        (target in _CLAMPS, _cast_clamped),
        (target in EXTREMES, widen_bytes),
        (target in PRODUCTS, widen_product),
        (target is aten.fmod.Scalar, round_divisor),
        (target is aten.add.Tensor, _drop_boolean_factor),
        (target in _SCALED, _float_numbers),
        (bool(_FACTORS & set(names)) and target not in _SCALED_BY_FLOAT, _integer_factors),
        (target in _REDUCED_DTYPES, _drop_own_dtype),
        ({"dtype", "layout", "device", "pin_memory"} <= set(names), _name_options),
        (target is aten.scaled_dot_product_attention.default, _default_scale),
        (target is aten.embedding.default, _drop_gradients),
        (target is aten.arange.start_step, _integer_bounds),
        (getattr(target, "_overloadname", "") == "vec" and "scale_factors" in names, _name_sizes),
    ]
    return tuple(rule for applies, rule in rules if applies)


def _rank(node: fx.Node, values: list[Any]) -> int | None:
    if node.target in _ADD_A_DIMENSION:
        result = tensor_of(node)
        return None if result is None else result.dim()
    first = values[0][0] if isinstance(values[0], (list, tuple)) and values[0] else values[0]
    if node.target is aten.cat.default:
        first = node  # an empty vector may be among tensors of any rank
    value = tensor_of(first)
    return None if value is None else max(value.dim(), 1)


def _count_from_front(node: fx.Node, values: list[Any]) -> None:
    rank = _rank(node, values)
    if rank is None:
        return
    for place in _places(node.target, _DIM_NAMES):
        value = values[place]
        if type(value) is int and value < 0:
            values[place] = value + rank
        elif isinstance(value, (list, tuple)) and any(type(dim) is int and dim < 0 for dim in value):
            values[place] = [dim + rank if dim < 0 else dim for dim in value]


@functools.cache
def _places(target: object, names: frozenset[str]) -> tuple[int, ...]:
    return tuple(place for name, place in parameter_places(target).items() if name in names)


def _sort_dims(node: fx.Node, values: list[Any]) -> None:
    (place,) = _places(node.target, _DIM_NAMES)
    value = tensor_of(values[0])
    dims = values[place]
    if type(dims) is int:
        dims = [dims]
    if not dims and value is not None and node.target in _REDUCTIONS:
        dims = range(value.dim())
    if dims is not None and list(dims) != sorted(dims):
        dims = sorted(dims)
    if dims is not None:
        values[place] = dims if isinstance(dims, list) else list(dims)


def _bound_slice(node: fx.Node, values: list[Any]) -> None:
    start_place = 2 if node.target is aten.slice_scatter.default else 1
    dim, start, end = values[start_place : start_place + 3]
    size = values[0].meta["val"].shape[dim]
    start = 0 if start is None else start
    end_value = end.meta.get("val") if isinstance(end, fx.Node) else end
    if type(size) is int:
        start, end = clip_bound(start, size), clip_bound(end, size)
    elif (
        end is None
        or (type(end) is int and end >= 2**31)
        or (end_value is not None and expression(end_value) == expression(size))
    ):
        end = sys.maxsize
    values[start_place + 1 : start_place + 3] = [start, end]


def clip_bound(bound: Any, size: int) -> Any:
    """Return a bound of a slice as an index from 0 to the size; one that is computed is unchanged."""
    if bound is None:
        return size
    if type(bound) is not int:
        return bound
    return min(max(bound + size if bound < 0 else bound, 0), size)


def _bound_index(node: fx.Node, values: list[Any]) -> None:
    place = parameter_places(node.target)["index"]
    size = values[0].meta["val"].shape[values[place - 1]]
    if type(values[place]) is int and values[place] < 0 and type(size) is int:
        values[place] += size


def _widen_windows(node: fx.Node, values: list[Any]) -> None:
    """Give windows a number for each dimension, and those of pooling a stride."""
    is_convolution, places = node.target is aten.convolution.default, parameter_places(node.target)
    rank = values[1].meta["val"].dim() - 2 if is_convolution else _WINDOWS[node.target]  # type: ignore[index]
    for place in (places[name] for name in _WINDOW_NAMES if name in places):
        listed = [values[place]] if type(values[place]) is int else values[place]
        values[place] = list(listed) * rank if len(listed) == 1 != rank else listed
    if not is_convolution and not values[places["stride"]]:
        values[places["stride"]] = values[places["kernel_size"]]


def _float_numbers(node: fx.Node, values: list[Any]) -> None:
    """Convert integers to floats where they are only used as floats of the tensors' dtype."""
    whole = [one for one in _places(node.target, _NUMBERS) if type(values[one]) is int and abs(values[one]) <= 2**24]
    if not whole:
        return
    dtypes = {value.dtype for value in map(tensor_of, values) if value is not None}
    result = tensor_of(node)
    dtypes |= set() if result is None or result.dtype is torch.bool else {result.dtype}
    if len(dtypes) != 1 or not next(iter(dtypes)).is_floating_point:
        return
    for place in whole:
        values[place] = float(values[place])


def _integer_factors(node: fx.Node, values: list[Any]) -> None:
    """Convert factors to integers where possible, like their defaults; a missing correction means 1."""
    for place in _places(node.target, _FACTORS):
        if isinstance(values[place], float) and _is_whole(values[place]):
            values[place] = int(values[place])
        elif values[place] is None and node.target in _CORRECTED:
            values[place] = 1


def _drop_boolean_factor(node: fx.Node, values: list[Any]) -> None:
    """Omit the factor in a sum of booleans: Inductor multiplies bytes by it, or writes too many (torch 2.13)."""
    _, other, alpha = values
    if node.meta["val"].dtype is not torch.bool or not isinstance(alpha, int) or (alpha == 1 and alpha is not True):
        return
    values[2] = 1
    if not alpha:
        value = tensor_of(other)
        values[1] = insert_call(node, aten.full_like.default, (other, False), value) if value is not None else False


def _is_whole(number: float) -> bool:
    """Return whether a number is an integer that is exact and fits an operator's argument; -0.0 is not one."""
    return number.is_integer() and abs(number) <= 2**53 and (number != 0 or math.copysign(1, number) > 0)


def _drop_own_dtype(node: fx.Node, values: list[Any]) -> None:
    place = parameter_places(node.target)["dtype"]
    value = tensor_of(values[0])
    if value is None or values[place] is None:
        return
    integers = not (value.dtype.is_floating_point or value.dtype.is_complex)
    if values[place] == (torch.int64 if integers else value.dtype):
        values[place] = None


def _name_options(node: fx.Node, values: list[Any]) -> None:
    """Make dtype, layout and device of factory functions explicit; omit unchanged ones from copies."""
    result, source = tensor_of(node), tensor_of(values[0])
    if result is None:
        return
    places = parameter_places(node.target)
    own = (None, None, None) if source is None else (source.dtype, source.device, source.layout)
    options = (("dtype", result.dtype), ("device", result.device), ("layout", result.layout))
    for (name, value), before in zip(options, own, strict=True):
        values[places[name]] = None if value == before else value
    values[places["pin_memory"]] = values[places["pin_memory"]] or None
    if "non_blocking" in places:
        values[places["non_blocking"]] = False
    if "memory_format" in places and values[places["memory_format"]] is torch.preserve_format:
        values[places["memory_format"]] = None


def _drop_gradients(_: fx.Node, values: list[Any]) -> None:
    """Omit the padding row and other arguments that only affect the gradient of an embedding."""
    values[2:] = [-1, False, False]


def _integer_bounds(_: fx.Node, values: list[Any]) -> None:
    """Convert the bounds of a range to integers where possible; its dtype is explicit."""
    values[:3] = [int(one) if isinstance(one, float) and _is_whole(one) else one for one in values[:3]]


def _name_sizes(node: fx.Node, values: list[Any]) -> None:
    """Resize to a size if a power-of-two factor gives it: positions are computed from the quotient."""
    places = parameter_places(node.target)
    factors, result, source = (
        values[places["scale_factors"]],
        node.meta["val"].shape[2:],
        values[0].meta["val"].shape[2:],
    )
    if factors is None or not (is_static(result) and is_static(source)):
        return
    exact = (
        math.frexp(one)[0] == 0.5 and size * one == to for one, size, to in zip(factors, source, result, strict=True)
    )
    if all(exact):
        values[places["output_size"]], values[places["scale_factors"]] = list(result), None


def _default_scale(_: fx.Node, values: list[Any]) -> None:
    place = parameter_places(aten.scaled_dot_product_attention.default)["scale"]
    size = values[0].meta["val"].shape[-1]
    is_known = isinstance(values[place], float) and type(size) is int and size > 0
    if is_known and math.isclose(values[place], size**-0.5, rel_tol=4e-16):  # 1 / sqrt(size) can be another last bit
        values[place] = None


_KEEPING = frozenset(
    {
        *(aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.logsumexp.default),
        *(aten.var.correction, aten.std.correction, aten.linalg_vector_norm.default, aten.prod.dim_int),
        *(aten.any.dim, aten.any.dims, aten.all.dim, aten.all.dims, aten.argmax.default, aten.argmin.default),
    }
)
_EXTREMES: dict[Any, Any] = {aten.max.dim: aten.amax.default, aten.min.dim: aten.amin.default}


@frozen_dataclass
class Reductions(Pass):
    """Rewrite ``x.sum(1).unsqueeze(1)`` to a sum that keeps its dimensions, and ``x.max(1)[0]`` to ``amax``.

    A reshape that only restores, or drops, the reduced dimensions becomes the reduction's own, if it is the only user.
    ``max`` and ``min`` whose indices are used are unchanged.
    """

    name: ClassVar[str] = "reductions"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified = False
        for node in calls_of(graph_module.graph, _EXTREMES):
            users = list(node.users)
            if users and all(user.target is operator.getitem and user.args[1] == 0 for user in users):
                x, dim, keepdim = arguments(node)
                node.meta["val"] = node.meta["val"][0]
                node.target, modified = _EXTREMES[node.target], True
                set_arguments(node, (x, [dim], keepdim))
                for user in users:
                    replace(user, node)
        for node in calls_of(graph_module.graph, _KEEPING):
            modified |= _keep(node)
        return PassResult(graph_module, modified)


def _keep(node: fx.Node) -> bool:
    (user,) = node.users if len(node.users) == 1 else (node,)
    places, values = parameter_places(node.target), arguments(node)
    dims = values[places["dim"]]
    if user.target is not aten.reshape.default or dims in (None, []):
        return False
    keepdim = not values[places["keepdim"]]
    sizes = node.all_input_nodes[0].meta["val"].shape
    reduced = {dims} if isinstance(dims, int) else set(dims)
    ones = [1 if dim in reduced else size for dim, size in enumerate(sizes)]
    shape = [size for dim, size in enumerate(ones) if keepdim or dim not in reduced]
    if not same_sizes(user.meta["val"].shape, shape):
        return False
    values[places["keepdim"]] = keepdim
    set_arguments(node, values)
    node.meta["val"] = user.meta["val"]
    replace(user, node)
    return True
