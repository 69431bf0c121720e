"""Removes guards on sizes that always hold, or that were checked before."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import expression

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Guards(Pass):
    """Removes ``_assert_scalar`` of what the ranges of the inputs' sizes prove, and of what an earlier one asserts.

    Ranges of input sizes are in the interface, and every call is held to them. A guard on a number that an operator
    makes (``nonzero``, ``item``) is all that checks that number, so the first one of each meaning stays; only that a
    size is not negative needs no guard.
    """

    name: ClassVar[str] = "guards"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove in place; the comparisons are left for dead code elimination."""
        guards = graph_module.graph.find_nodes(op="call_function", target=aten._assert_scalar.default)
        sizes = _input_symbols(graph_module.graph) if guards else set()
        seen: set[object] = set()
        modified = False
        for node in guards:
            condition = _condition(node.args[0])
            meaning = _meaning(condition)
            if meaning in seen or _always_holds(node.args[0], condition, sizes):
                graph_module.graph.erase_node(node)
                modified = True
            seen.add(meaning)
        return PassResult(graph_module, modified)


def _condition(argument: Any) -> Any:
    value = argument.meta.get("val") if hasattr(argument, "meta") else argument
    return value.node.expr if isinstance(value, torch.SymBool) else value


def _meaning(condition: Any) -> object:
    """Return an inequality of whole numbers in one form, ``0 <= x``; anything else as it is, a node as itself."""
    if isinstance(condition, (sympy.StrictLessThan, sympy.StrictGreaterThan)) and _is_whole(condition):
        return sympy.Le(0, condition.gts - condition.lts - 1, evaluate=False)
    if isinstance(condition, (sympy.LessThan, sympy.GreaterThan)):
        return sympy.Le(0, condition.gts - condition.lts, evaluate=False)
    return condition


def _is_whole(condition: Any) -> bool:
    return bool(condition.lhs.is_integer and condition.rhs.is_integer)


def _input_symbols(graph: fx.Graph) -> set[object]:
    symbols: set[object] = set()
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            symbols |= getattr(expression(size), "free_symbols", set())
    return symbols


def _always_holds(argument: Any, condition: Any, inputs: set[object]) -> bool:
    if condition is True or condition == sympy.true:
        return True
    if not isinstance(condition, sympy.Basic):
        return False
    if condition.free_symbols <= inputs:
        return statically_known_true(argument.meta["val"])
    return _is_of_size(argument)


def _is_of_size(argument: Any) -> bool:
    """Say whether a condition is that the size of a dimension is at least zero."""
    if getattr(argument, "target", None) is not operator.ge:
        return False
    size, least = argument.args
    return least == 0 and getattr(size, "target", None) is aten.sym_size.int
