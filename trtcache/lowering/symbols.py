"""Symbolic sizes with names that do not depend on torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
from torch.utils._sympy.functions import Max, Min

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.digests import Json


_ANY_ORDER = (sympy.Add, sympy.Mul, sympy.Max, sympy.Min, Max, Min)


class Symbols:
    """Number symbols by first use, and write expressions over them as JSON.

    A number is itself, a symbol ``{"sym": n}``, and any other expression ``["Add", ...]`` with sympy's name for its
    head; arguments of sums and products are in an order independent of names.
    """

    def __init__(self) -> None:
        """Start without symbols."""
        self._numbers: dict[sympy.Symbol, int] = {}
        self._written: dict[object, Json] = {}

    def copy(self) -> Symbols:
        """Return an independent copy with the same numbering."""
        other = Symbols()
        other._numbers, other._written = dict(self._numbers), dict(self._written)
        return other

    @property
    def order(self) -> tuple[sympy.Symbol, ...]:
        """The symbols in the order of their numbers."""
        return tuple(self._numbers)

    def write(self, size: Any) -> Json:
        """Return a size (an int, a SymInt or a sympy expression) as JSON; number its new symbols."""
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
        # First use must not depend on sympy's order, which is by name: sort by an argument's own structure. (sympy also
        # calls a power and a quotient "commutative", meaning the numbers, not the arguments.)
        args = sorted(expression.args, key=_shape) if isinstance(expression, _ANY_ORDER) else list(expression.args)
        written = [self.write(one) for one in args]
        if expression.is_Add or expression.is_Mul:
            written.sort(key=repr)
        return [type(expression).__name__, *written]

    def ranges(self, constraints: Mapping[Any, Any]) -> tuple[tuple[int | None, int | None], ...]:
        """Return the minimum and maximum of each numbered symbol; None if unbounded."""
        bounds: list[tuple[int | None, int | None]] = [(None, None)] * len(self._numbers)
        for symbol, number in self._numbers.items():
            if symbol in constraints:
                bounds[number] = (_to_int(constraints[symbol].lower), _to_int(constraints[symbol].upper))
        return tuple(bounds)


def _shape(expression: sympy.Basic) -> tuple[int, str, str]:
    """Return a sort key from an argument's structure, not the names of its symbols (ties keep sympy's order)."""
    text = str(expression) if expression.is_number else ""
    return (expression.count_ops(), type(expression).__name__, text)


def _to_int(bound: Any) -> int | None:
    return int(bound) if bound.is_Integer else None
