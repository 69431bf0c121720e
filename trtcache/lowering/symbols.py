"""Symbolic sizes under names that do not depend on how torch called them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.values import Json


class Symbols:
    """Numbers symbols by first use, and writes expressions over them as JSON.

    A number is itself, a symbol ``{"sym": n}``, and any other expression ``["Add", ...]`` with sympy's name for its
    head; arguments of sums and products are in an order that names do not decide.
    """

    def __init__(self) -> None:
        """Start with no symbols."""
        self._numbers: dict[sympy.Symbol, int] = {}
        self._written: dict[object, Json] = {}

    def write(self, size: Any) -> Json:
        """Return a size (an int, a SymInt or a sympy expression) as JSON, numbering its new symbols."""
        if type(size) is int:
            return size
        expression = size.node.expr if hasattr(size, "node") else sympy.sympify(size)
        written = self._written.get(expression)
        if written is None:
            written = self._written[expression] = self._write(expression)
        return written

    def _write(self, expression: sympy.Expr) -> Json:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return {"sym": self._numbers.setdefault(expression, len(self._numbers))}
        if not expression.args:
            return ["atom", str(expression)]
        # First use must not depend on sympy's order, which is by name: an argument's own shape decides.
        args = sorted(expression.args, key=_shape) if expression.is_commutative else list(expression.args)
        written = [self.write(one) for one in args]
        if expression.is_Add or expression.is_Mul:
            written.sort(key=repr)
        return [type(expression).__name__, *written]

    def ranges(self, constraints: Mapping[Any, Any]) -> tuple[tuple[int | None, int | None], ...]:
        """Return the least and the most value of each numbered symbol; None where it has no bound."""
        bounds: list[tuple[int | None, int | None]] = [(None, None)] * len(self._numbers)
        for symbol, number in self._numbers.items():
            if symbol in constraints:
                bounds[number] = (_bound(constraints[symbol].lower), _bound(constraints[symbol].upper))
        return tuple(bounds)


def _shape(expression: sympy.Basic) -> tuple[int, str, str]:
    """Order arguments by what they are, not by the names of their symbols (a tie keeps sympy's order)."""
    text = str(expression) if expression.is_number else ""
    return (expression.count_ops(), type(expression).__name__, text)


def _bound(bound: Any) -> int | None:
    return int(bound) if bound.is_Integer else None


def evaluate(written: Json, sizes: Mapping[int, int]) -> int | None:
    """Return the value of an integer expression that ``Symbols`` wrote, given its symbols' values.

    Only sums, products, powers and integer divisions are known, which is all that shapes and strides of inputs are
    made of; None for others.
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
    return _apply(str(written[0]), [int(value) for value in values if value is not None])


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
            return int(values[0] ** values[1])
        case "FloorDiv" | "CleanDiv" if values[1]:
            return values[0] // values[1]
        case "Max":
            return max(values)
        case "Min":
            return min(values)
        case _:
            return None
