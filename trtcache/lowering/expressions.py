"""Evaluation of sizes and guards in the JSON form of ``Symbols`` and ``input_guards``, without sympy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.digests import Json


def evaluate(written: Json, sizes: Mapping[int, int]) -> Any:
    """Evaluate an expression for given values of its symbols.

    Args:
        written: a size, or a guard whose value is a bool.
        sizes: the symbols' values by number: numbers, or a tracer's symbols.

    Returns:
        The value, or None if a symbol has no value, an operation is unknown, or it divides by zero.
    """
    if isinstance(written, int):
        return written
    if isinstance(written, dict):
        return sizes.get(int(str(written["sym"])))
    if not isinstance(written, list):
        return None
    if written[0] == "Number":
        return float.fromhex(str(written[1]))
    values = [evaluate(one, sizes) for one in written[1:]]
    if any(value is None for value in values):
        return None
    try:
        return _apply(str(written[0]), values)
    except (ArithmeticError, ValueError):
        return None


def bounds(written: Json, ranges: Sequence[tuple[int | None, int | None]]) -> tuple[float, float]:
    """Return the minimum and maximum of a sum or product over ranges of symbols; infinite if unbounded."""
    if isinstance(written, dict):
        number = int(str(written["sym"]))
        lower, upper = ranges[number] if number < len(ranges) else (None, None)
        return -math.inf if lower is None else lower, math.inf if upper is None else upper
    if isinstance(written, int):
        return written, written
    if not isinstance(written, list) or written[0] not in {"Add", "Mul"}:
        return -math.inf, math.inf
    low, high = bounds(written[1], ranges)
    for part in written[2:]:
        least, most = bounds(part, ranges)
        if written[0] == "Add":
            low, high = low + least, high + most
        else:
            corners = [one * other if one and other else 0 for one in (low, high) for other in (least, most)]
            low, high = min(corners), max(corners)
    return low, high


def affine(written: Json) -> tuple[int, int, int] | None:
    """Return ``(n, a, b)`` for an expression ``a * s + b`` of the symbol ``n``; None for any other."""
    match written:
        case {"sym": int(number)}:
            return number, 1, 0
        case ["Mul", int(factor), inner] | ["Mul", inner, int(factor)]:
            found = affine(inner)
            return found and (found[0], factor * found[1], factor * found[2])
        case ["Add", int(more), inner] | ["Add", inner, int(more)]:
            found = affine(inner)
            return found and (found[0], found[1], found[2] + more)
    return None


def _apply(head: str, values: list[Any]) -> Any:  # noqa: C901  # one case per operation
    match head:
        case "Add":
            return sum(values[1:], values[0])
        case "Mul":
            product = values[0]
            for value in values[1:]:
                product = product * value
            return product
        case "Pow" | "PowByNatural" if values[1] >= 0:
            return values[0] ** values[1]
        case "FloorDiv" | "CleanDiv":
            return values[0] // values[1]
        case "Mod" | "PythonMod":
            return values[0] % values[1]
        case "TrueDiv" | "IntTrueDiv":
            return values[0] / values[1]
        case "Max":
            return max(values)
        case "Min":
            return min(values)
        case "Abs":
            return abs(values[0])
        case "Float" | "ToFloat":
            return float(values[0])
        case "Sqrt":
            return math.sqrt(values[0])
        case "Floor" | "FloorToInt":
            return math.floor(values[0])
        case "Ceil" | "CeilToInt":
            return math.ceil(values[0])
        case "Trunc" | "TruncToInt":
            return math.trunc(values[0])
        case "Round":
            return round(*values)
        case _:
            return _decide(head, values)


def _decide(head: str, values: list[Any]) -> Any:
    match head:
        case "Eq":
            return values[0] == values[1]
        case "Ne":
            return values[0] != values[1]
        case "Le":
            return values[0] <= values[1]
        case "Lt":
            return values[0] < values[1]
        case "And":
            return all(values)
        case "Or":
            return any(values)
        case "Not":
            return not values[0]
        case _:
            return None
