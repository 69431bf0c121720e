"""Symbolic sizes with names that do not depend on torch's, and numbers among a program's results.

A number that is an expression over the inputs' sizes is computed at the call, without the engine. Any other is only
known to the engine (``x.item()``, ``x.nonzero().shape[0]``): it becomes a tensor of one element, which the compiled
module converts back to a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._sympy.functions import Max, Min

from trtcache.errors import ExportError
from trtcache.lowering.interface import affine, evaluate
from trtcache.lowering.rewriting import insert_call, tensor_of

if TYPE_CHECKING:
    from torch import fx

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
        if isinstance(expression, _ANY_ORDER):
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


def follows_from_inputs(number: Any, graph: fx.Graph) -> bool:
    """Return whether a call can compute a number from the sizes of a graph's marked inputs."""
    symbols, bound = Symbols(), dict[int, int]()
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if "input" in node.meta and isinstance(value, torch.Tensor):
            for size in value.shape:
                if found := affine(symbols.write(size)):
                    bound[found[0]] = 2  # any value: this only tests whether the number can be evaluated
    try:
        return evaluate(write_number(number, symbols), bound) is not None
    except ExportError:
        return False


def write_number(number: Any, symbols: Symbols) -> Json:
    """Return a number computed from sizes (a SymInt, SymFloat or SymBool, or such JSON) as JSON, for ``evaluate``.

    Raises:
        ExportError: a term of a comparison is unknown.
    """
    if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return number  # type: ignore[no-any-return]  # JSON of a stored interface
    if isinstance(number, torch.SymBool):
        from trtcache.lowering.guards import symbolic_guards

        found = symbolic_guards([number.node.expr], symbols)
        return found[0] if found else None
    return symbols.write(number)


def sizes_differ(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether two shapes, or strides, are known to differ. Symbolic sizes are not compared: it adds guards."""
    pairs = zip(sizes, others, strict=False)
    return len(sizes) != len(others) or any(
        one != other for one, other in pairs if isinstance(one, int) and isinstance(other, int)
    )


def as_tensor(node: fx.Node, output: fx.Node) -> fx.Node:
    """Return a tensor of one element with a number, inserted before the output; ``item()`` is its inverse.

    Raises:
        ExportError: a tensor may not represent the number exactly.
    """
    if node.target is torch.ops.aten._local_scalar_dense.default:
        return node.all_input_nodes[0]
    value = node.meta["val"]
    mode = next((one.fake_mode for one in map(tensor_of, node.graph.nodes) if isinstance(one, FakeTensor)), None)
    if mode is None or not isinstance(value, torch.SymInt):
        # torch rearranges arithmetic on floats: the last bit could differ.
        what = {torch.SymFloat: "a float", torch.SymBool: "a truth value"}.get(type(value), "a number")
        why = f"it returns {what} that is computed at the call ({value})"
        raise ExportError("the program", f"{why}; return a tensor, and compute the number outside")
    with mode:
        made = insert_call(output, torch.ops.aten.scalar_tensor.default, (node,), torch.empty((), dtype=torch.int64))
    made.kwargs = {"dtype": torch.int64}
    return made
