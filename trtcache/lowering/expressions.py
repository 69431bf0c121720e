"""Sizes as ``Symbols`` writes them, put into numbers. It needs no sympy: a call's inputs are checked by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.values import Json


def evaluate(written: Json, sizes: Mapping[int, int]) -> int | None:
    """Return the value of an integer expression that ``Symbols`` wrote, given its symbols' values.

    Only sums, products, powers and integer divisions are known, which is all that shapes and strides of inputs are
    made of; None for others. A tracer's symbols are as good as numbers.
    """
    if isinstance(written, int):
        return written
    if isinstance(written, dict):
        return sizes.get(int(str(written["sym"])))
    if not isinstance(written, list):
        return None
    values = [evaluate(one, sizes) for one in written[1:]]
    if any(value is None for value in values):
        return None
    return _apply(str(written[0]), [value for value in values if value is not None])


def affine(written: Json) -> tuple[int, int, int] | None:
    """Return ``(n, a, b)`` for an expression that is ``a * s + b`` of the symbol ``n``; None for any other."""
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


def _apply(head: str, values: list[int]) -> int | None:
    match head:
        case "Add":
            return sum(values)
        case "Mul":
            product = 1
            for value in values:
                product *= value
            return product
        case "Pow" if values[1] >= 0:
            power: int = values[0] ** values[1]
            return power
        case "FloorDiv" | "CleanDiv" if values[1]:
            return values[0] // values[1]
        case "Mod" | "PythonMod" if values[1]:
            return values[0] % values[1]
        case "Max":
            return max(values)
        case "Min":
            return min(values)
        case _:
            return None
