"""Removal of assertions about tensors and sizes that the graph or its interface already proves."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewrites.constants import new_constant
from trtcache.lowering.rewrites.sizes import OUT_OF_RANGE, is_read_from_data
from trtcache.lowering.rewriting import expression

aten = torch.ops.aten

_PROVEN = frozenset(
    {
        *(aten._assert_tensor_metadata.default, aten.sym_constrain_range.default),
        aten.sym_constrain_range_for_size.default,
    }
)


@dataclass(frozen=True, slots=True)
class Assertions(Pass):
    """Remove ``_assert_tensor_metadata`` and ``sym_constrain_range``, and unify the messages of ``_assert_scalar``.

    Dtype, device and layout of every value are known in the graph, and ranges of symbols are in the interface, which is
    checked on each call. Assertions on values (``_assert_async``) and on data-dependent sizes stay, as side effects;
    torch's messages for the latter name symbols and nodes, which may differ between equal programs.
    """

    name: ClassVar[str] = "assertions"
    version: ClassVar[int] = 2

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove the assertions in place."""
        modified = False
        for node in graph_module.graph.nodes:
            if node.target in _PROVEN:
                graph_module.graph.erase_node(node)
                modified = True
            elif node.target is aten._assert_scalar.default and node.args[1] != OUT_OF_RANGE:
                node.args = (node.args[0], OUT_OF_RANGE)
                modified = True
        return PassResult(graph_module, modified)


PROVEN = "proven_assertions"
"""The key in a graph module's ``meta`` of removed assertions' conditions, which are checked on each call."""

_RELATIONS = {
    operator.eq: sympy.Eq,
    operator.ne: sympy.Ne,
    operator.lt: sympy.Lt,
    operator.le: sympy.Le,
    operator.gt: sympy.Gt,
    operator.ge: sympy.Ge,
}


@dataclass(frozen=True, slots=True)
class Guards(Pass):
    """Remove ``_assert_scalar`` of what torch knows about the inputs' sizes, and of what an earlier one asserts.

    Torch knows it from guards, ranges, and its assumption that sizes are at least 2. So the condition of a removed
    assertion is kept as a guard that is checked on each call. An assertion is the only check of a data-dependent number
    (``nonzero``, ``item``), so the first one of each meaning stays, even if torch has concluded from it that it is
    true; only that a size is not negative needs no assertion.
    """

    name: ClassVar[str] = "guards"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Remove in place; the comparisons are left for dead code elimination."""
        proven: list[Any] = graph_module.meta.setdefault(PROVEN, [])
        seen: set[object] = set()
        modified = False
        for node in graph_module.graph.find_nodes(op="call_function", target=aten._assert_scalar.default):
            condition, on_data = _condition(node.args[0]), _depends_on_data(node.args[0])
            meaning = _meaning(condition)
            if meaning in seen or _always_holds(node.args[0], condition, on_data=on_data):
                if not on_data:
                    proven.append(condition)
                graph_module.graph.erase_node(node)
                modified = True
            seen.add(meaning)
        return PassResult(graph_module, modified)


def _condition(argument: Any) -> Any:
    """Return the asserted condition as a sympy expression, even if torch knows its outcome; a node itself."""
    if not isinstance(argument, fx.Node):
        return argument
    if argument.target in _RELATIONS:
        terms = [_term(one) for one in argument.args]
        return _RELATIONS[argument.target](*map(sympy.sympify, terms), evaluate=False)
    value = argument.meta.get("val")
    condition = value.node.expr if isinstance(value, torch.SymBool) else argument
    return condition if getattr(condition, "free_symbols", None) else argument


def _term(argument: Any) -> Any:
    """Return one side of a comparison; for a data-dependent number its own symbol, not torch's conclusion."""
    if not isinstance(argument, fx.Node):
        return argument
    value = argument.meta["val"]
    return value.node._expr if is_read_from_data(argument) else expression(value)


def _meaning(condition: Any) -> object:
    """Return an inequality of integers in the form ``0 <= x``; anything else unchanged."""
    if isinstance(condition, (sympy.StrictLessThan, sympy.StrictGreaterThan)) and _is_whole(condition):
        return sympy.Le(0, condition.gts - condition.lts - 1, evaluate=False)
    if isinstance(condition, (sympy.LessThan, sympy.GreaterThan)):
        return sympy.Le(0, condition.gts - condition.lts, evaluate=False)
    return condition


def _is_whole(condition: Any) -> bool:
    return bool(condition.lhs.is_integer and condition.rhs.is_integer)


def _depends_on_data(argument: Any) -> bool:
    """Return whether a condition depends on a data-dependent number, directly or indirectly."""
    if not isinstance(argument, fx.Node):
        return False
    value = argument.meta.get("val")
    if isinstance(value, torch.Tensor):
        return False
    return is_read_from_data(argument) or any(map(_depends_on_data, argument.all_input_nodes))


def _always_holds(argument: Any, condition: Any, *, on_data: bool) -> bool:
    if condition is True:
        return True
    if on_data or not isinstance(argument, fx.Node):
        return on_data and _is_of_size(argument)
    value = argument.meta["val"]
    return value is True or (isinstance(value, torch.SymBool) and statically_known_true(value))


def _is_of_size(argument: Any) -> bool:
    """Return whether a condition is that the size of a dimension is at least zero."""
    if getattr(argument, "target", None) is not operator.ge:
        return False
    size, least = argument.args
    return least == 0 and getattr(size, "target", None) is aten.sym_size.int


@dataclass(frozen=True, slots=True)
class Attributes(Pass):
    """Convert tensors in submodules to constants, and reject parameters.

    torch.export has already made inputs of parameters and buffers, and constants of tensors that are plain attributes
    of modules. A parameter that the graph still reads would be a weight without a slot.
    """

    name: ClassVar[str] = "attributes"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite in place."""
        modified = False
        for node in graph_module.graph.find_nodes(op="get_attr"):
            if "." in str(node.target):
                value = _look_up(graph_module, str(node.target))
                if isinstance(value, torch.Tensor):
                    node.replace_all_uses_with(new_constant(graph_module, value, before=node))
                    graph_module.graph.erase_node(node)
                    modified = True
        return PassResult(graph_module, modified)

    def requires(self, graph_module: fx.GraphModule) -> str | None:
        """Return the first node that reads a parameter, or calls a module, if any."""
        graph = graph_module.graph
        for node in (*graph.find_nodes(op="call_module"), *graph.find_nodes(op="call_method")):
            return f"{node.name} calls {node.target}; the graph must be one of operators"
        for node in graph.find_nodes(op="get_attr"):
            if isinstance(_look_up(graph_module, str(node.target)), torch.nn.Parameter):
                return f"{node.name} reads the parameter {node.target}; weights must be inputs"
        return None


def _look_up(graph_module: fx.GraphModule, path: str) -> object:
    found: object = graph_module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
