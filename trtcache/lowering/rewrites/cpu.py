"""Calls that Inductor computes wrongly on a CPU, as other calls that it computes as torch does (torch 2.13).

Calls on other devices are unchanged, so that their programs keep their keys.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from trtcache.lowering.rewriting import insert_call, insert_cast, tensor_of

aten = torch.ops.aten

EXTREMES = frozenset(
    {
        *(aten.amax.default, aten.amin.default, aten.max.dim, aten.min.dim),
        *(aten.argmax.default, aten.argmin.default),
    }
)
PRODUCTS = frozenset({aten.prod.default, aten.prod.dim_int})
REMAINDERS = frozenset({aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor})
_HALVES = frozenset({torch.float16, torch.bfloat16})
_BYTES = frozenset({torch.int8, torch.uint8, torch.bool})


def widen_bytes(node: fx.Node, values: list[Any]) -> None:
    """Take an extreme of int8, uint8 or bool in int32, and cast what is one of the elements back.

    Inductor loads 16 bytes into a vector of 32 or 64, and reduces all of it, with the zeros behind them: the maximum of
    40 negative numbers was 0, and the place of it any number. The place of the least bool along an outer dimension was
    0, whatever was there.
    """
    value = tensor_of(values[0])
    if value is None or value.dtype not in _BYTES or value.device.type != "cpu":
        return
    values[0] = insert_cast(node, values[0], value.to(torch.int32))
    result = node.meta["val"]
    if not isinstance(result, torch.Tensor):  # max and min along a dimension: the elements and their places
        elements, places = result
        node.meta["val"] = (elements.to(torch.int32), places)
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 0:
                _cast_back(user, value.dtype)
    elif result.dtype is value.dtype:
        _cast_back(node, value.dtype)


def widen_product(node: fx.Node, values: list[Any]) -> None:
    """Multiply int8, uint8 or bool in int32, which gives the same bytes: the zeros made the product of 40 ones 0."""
    value, result = tensor_of(values[0]), node.meta["val"]
    if value is None or result.dtype not in _BYTES or result.device.type != "cpu":
        return
    if value.dtype is not result.dtype:
        values[0] = insert_cast(node, values[0], value.to(result.dtype))
    values[-1] = torch.int32  # the argument ``dtype``
    _cast_back(node, result.dtype)


def _cast_back(node: fx.Node, dtype: torch.dtype) -> None:
    value = node.meta["val"]
    node.meta["val"] = value.to(torch.int32)
    with node.graph.inserting_after(node):
        cast = node.graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta["val"] = value
    node.replace_all_uses_with(cast, delete_user_cb=lambda user: user is not cast)


def take_remainder(node: fx.Node) -> None:
    """Compute a remainder of floats from ``fmod``, as torch's kernel does.

    Inductor's vectors have ``a - floor(a / b) * b``, whose quotient and product are rounded: ``99999992 % 3`` was 0
    instead of 2, and ``50331649 % 6.2831855`` was 8.
    """
    result = node.meta["val"]
    if not result.dtype.is_floating_point or result.device.type != "cpu":
        return
    x = _operand(node, node.args[0], result, is_divisor=False)
    divisor = _operand(node, node.args[1], result, is_divisor=True)
    truth = result.to(torch.bool)
    if isinstance(divisor, float):
        rest = insert_call(node, aten.fmod.Scalar, (x, divisor), result)
        beyond = insert_call(node, aten.gt.Scalar if divisor < 0 else aten.lt.Scalar, (rest, 0.0), truth)
    else:
        rest = insert_call(node, aten.fmod.Tensor, (x, divisor), result)
        value = divisor.meta["val"].to(torch.bool)
        signs = (
            insert_call(node, aten.lt.Scalar, (rest, 0.0), truth),
            insert_call(node, aten.lt.Scalar, (divisor, 0.0), value),
        )
        differ = insert_call(node, aten.bitwise_xor.Tensor, signs, truth)
        nonzero = insert_call(node, aten.ne.Scalar, (rest, 0.0), truth)
        beyond = insert_call(node, aten.bitwise_and.Tensor, (nonzero, differ), truth)
    total = insert_call(node, aten.add.Tensor, (rest, divisor), result)
    node.target, node.args, node.kwargs = aten.where.self, (beyond, total, rest), {}


def _operand(node: fx.Node, operand: Any, result: torch.Tensor, *, is_divisor: bool) -> Any:
    """Return a tensor of the result's dtype, or the divisor if that is a constant number."""
    value = tensor_of(operand)
    if value is not None:
        return operand if value.dtype is result.dtype else insert_cast(node, operand, value.to(result.dtype))
    if not isinstance(operand, fx.Node):
        operand = _rounded_number(operand, result.dtype)
        if is_divisor:
            return operand
    number = insert_call(node, aten.full.default, ([], operand), result.new_empty(()))
    number.kwargs = {"dtype": result.dtype, "layout": torch.strided, "device": result.device}
    return number


def round_divisor(node: fx.Node, values: list[Any]) -> None:
    """Round the number that ``fmod`` divides halves by to their dtype."""
    result = node.meta["val"]
    if result.dtype in _HALVES and result.device.type == "cpu" and isinstance(values[1], (int, float)):
        values[1] = _rounded_number(values[1], result.dtype)


def _rounded_number(number: float, dtype: torch.dtype) -> float:
    """Return a number as torch rounds it; Inductor computes with halves as with float32.

    0.1 is 0.10009765625 in bfloat16, and ``x % 0.1`` differed by up to 0.1.
    """
    return torch.tensor(float(number), dtype=torch.float64, device="cpu").to(dtype).item()
