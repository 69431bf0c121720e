"""Canonical arithmetic on symbolic sizes, and removal of assertions that the graph or its interface proves."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy import functions

from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.passes import Pass, PassResult
from trtcache.lowering.rewriting import expression, is_data_dependent, is_number, replace

aten = torch.ops.aten


OUT_OF_RANGE = "a number that the program computes is out of its range"
"""The message of every assertion on a number; torch's messages name symbols and nodes, which may differ."""

_DIVISIONS: dict[object, Callable[..., Any]] = {
    functions.FloorDiv: operator.floordiv,
    functions.CleanDiv: operator.floordiv,
    functions.Mod: operator.mod,
    functions.PythonMod: operator.mod,
}


@frozen_dataclass
class CanonicalSizes(Pass):
    """Replace arithmetic on sizes: equal expressions of the inputs' sizes become the same nodes.

    A symbol is read from the first input that has it; sums and products are in the order of those inputs.
    Data-dependent sizes (of ``nonzero``, for example) and expressions without arithmetic of their own (``ceil``) are
    unchanged. A number read from a tensor (``item``) may be known from an assertion: ``torch._check(n.item() == 4)``.
    It is replaced where it is used, but not in comparisons: the assertion itself would become ``4 == 4``.
    """

    name: ClassVar[str] = "sizes"
    version: ClassVar[int] = 1

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Replace in place; unused nodes are left for dead code elimination."""
        found = [node for node in graph_module.graph.nodes if isinstance(node.meta.get("val"), torch.SymInt)]
        if not found:
            return PassResult(graph_module, modified=False)
        sizes = SizeNodes(graph_module.graph)
        sizes.read()  # before assertions are added
        modified = _assert_conclusions(graph_module.graph, sizes)
        for node in found:
            if node.op != "call_function" or not node.users:
                continue
            size = sizes.of(node.meta["val"])
            if size is not None and size is not node:
                modified |= _substitute(node, size)
        done: set[fx.Node] = set()
        for node in list(graph_module.graph.nodes) if modified else ():
            # At the head of the graph a size may precede a node that it now uses.
            _place_after_inputs(node, done)
        # Nodes can have been created for parts of a size that cannot be computed.
        return PassResult(graph_module, modified or sizes.changed)


def _assert_conclusions(graph: fx.Graph, sizes: SizeNodes) -> bool:
    """Assert torch's conclusions about data-dependent numbers, if the graph does not; return whether it changed.

    If torch finds that ``n.item()`` must be ``2 * x.shape[0]`` it writes an assertion, and replaces one by the other
    from then on, even in the assertion: ``eq(item, item)`` (observed with torch 2.13).
    """
    read = [node for node in graph.nodes if is_read_from_data(node) and node.meta["val"].node._expr.is_Symbol]
    by_symbol = {node.meta["val"].node._expr: node for node in reversed(read)}
    modified = False
    for node in read:
        value = node.meta["val"]
        concluded = value.node.expr
        if concluded == value.node._expr or not isinstance(value, torch.SymInt):
            continue
        same = by_symbol[concluded] if concluded in by_symbol else sizes.of(value)
        if same is None or same is node or any(_is_assertion(user, node, concluded) for user in node.users):
            continue
        with graph.inserting_after(max(node, same) if isinstance(same, fx.Node) else node):
            equal = graph.call_function(operator.eq, (node, same))
        equal.meta["val"] = value == (same.meta["val"] if isinstance(same, fx.Node) else same)
        with graph.inserting_after(equal):
            assertion = graph.call_function(aten._assert_scalar.default, (equal, OUT_OF_RANGE))
        assertion.meta["val"] = None
        modified = True
    return modified


def _is_assertion(user: fx.Node, node: fx.Node, concluded: Any) -> bool:
    """Return whether a comparison asserts that a number is what torch concluded, by something other than itself."""
    if user.target is not operator.eq or aten._assert_scalar.default not in {one.target for one in user.users}:
        return False
    others = [one for one in user.args if one is not node]
    values = [expression(one.meta["val"]) if isinstance(one, fx.Node) else one for one in others]
    return any(value == concluded for value in values)


def _place_after_inputs(node: fx.Node, done: set[fx.Node]) -> None:
    for used in node.all_input_nodes:
        if used not in done:
            node.prepend(used)
            _place_after_inputs(used, done)
    done.add(node)


def _substitute(node: fx.Node, size: fx.Node | int) -> bool:
    """Replace a node by a size, except in assertions of data-dependent numbers; return whether a user changed."""
    users = [
        user
        for user in node.users
        # An assertion may be about a comparison, or about another number read from data.
        if not (
            is_read_from_data(node)
            and (isinstance(user.meta.get("val"), (bool, torch.SymBool)) or is_read_from_data(user))
        )
    ]
    if isinstance(size, fx.Node) and len(users) == len(node.users):
        replace(node, size)
        return True
    for user in users:
        # A number that is the same for all inputs; it was traced as a symbol before a constraint fixed it.
        user.args = fx.map_arg(user.args, lambda one: size if one is node else one)
        user.kwargs = fx.map_arg(user.kwargs, lambda one: size if one is node else one)
    if not node.users:
        node.graph.erase_node(node)
    return bool(users)


def is_read_from_data(node: fx.Node) -> bool:
    """Return whether a number is data-dependent, whatever torch has concluded about it."""
    value = node.meta.get("val")
    if not isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return False
    return is_data_dependent(value.node._expr)


class SizeNodes:
    """The nodes at the head of a graph that compute sizes, by expression."""

    def __init__(self, graph: fx.Graph) -> None:
        """Create it without reading the graph, since most callers only need numbers."""
        self.changed = False
        self._graph = graph
        self._sources: dict[Any, tuple[fx.Node, int]] = {}
        self._ranks: dict[Any, int] = {}
        self._known: dict[object, fx.Node] = {}
        self._last: fx.Node | None = None
        self._was_read = False

    def read(self) -> None:
        """Find the inputs' sizes, and the sizes already computed at the head of the graph."""
        self._was_read, computed = True, set[fx.Node]()
        for node in self._graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder":
                sizes = value.shape if isinstance(value, torch.Tensor) and "input" in node.meta else ()
                for dim, size in enumerate(map(expression, sizes)):
                    if not is_number(size):
                        self._sources.setdefault(size, (node, dim))
                        self._ranks.setdefault(size, len(self._ranks))
            elif node.op != "get_attr":
                operands = [used for used in node.all_input_nodes if used.op != "placeholder"]
                if not isinstance(value, torch.SymInt) or not computed.issuperset(operands):
                    break
                if self._known.setdefault((node.target, node.args), node) is node:
                    computed.add(node)
            self._last = node

    def of(self, size: Any) -> fx.Node | int | None:
        """Return the node that computes a size, or the number that it is; None if the inputs do not determine it."""
        if not self._was_read:
            self.read()
        return self._make(expression(size))

    def of_all(self, shape: Any) -> list[fx.Node | int] | None:
        """Return nodes and numbers for a shape; None if the inputs do not determine one of its sizes."""
        made = [size if type(size) is int else self.of(size) for size in shape]
        return None if any(one is None for one in made) else made  # type: ignore[return-value]  # None was ruled out

    def _make(self, wanted: Any) -> fx.Node | int | None:
        if is_number(wanted):
            return int(wanted)
        if wanted in self._sources:
            return self._call(aten.sym_size.int, *self._sources[wanted])
        if wanted.is_Symbol:
            return self._derive(wanted)
        if wanted.is_Add or wanted.is_Mul:
            call = functools.partial(self._call, operator.add if wanted.is_Add else operator.mul)
            parts = [self._make(one) for one in sorted(wanted.args, key=self._rank)]
            return None if any(part is None for part in parts) else functools.reduce(call, parts)
        if wanted.is_Pow and is_number(wanted.exp) and wanted.exp > 0:
            return self._apply(operator.pow, wanted.args)
        function = _DIVISIONS.get(wanted.func)
        return self._apply(function, wanted.args) if function else None

    def _apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> fx.Node | int | None:
        parts = [self._make(one) for one in args]
        return None if any(part is None for part in parts) else self._call(function, *parts)

    def _derive(self, symbol: sympy.Symbol) -> fx.Node | int | None:
        """Return a symbol that is not an input's size, from an input whose size is a multiple of it."""
        for source in self._sources:
            if source.is_Mul and len(source.args) == 2 and is_number(source.args[0]) and source.args[1] == symbol:
                return self._call(operator.floordiv, self._make(source), int(source.args[0]))
            if source.is_Add and len(source.args) == 2 and is_number(source.args[0]) and source.args[1] == symbol:
                return self._call(operator.add, self._make(source), -int(source.args[0]))
        return None

    def _rank(self, part: Any) -> tuple[Any, ...]:
        """Return the sort key of a part of a sum or product: by the inputs, not by names of symbols; numbers last."""
        if is_number(part):
            return (2, int(part))
        if part in self._ranks:
            return (0, self._ranks[part])
        return (1, type(part).__name__, sorted(map(self._rank, part.args)))

    def _call(self, function: Any, *args: Any) -> fx.Node:
        known = self._known.get((function, args))
        if known is not None:
            return known
        values = [one.meta["val"] if isinstance(one, fx.Node) else one for one in args]
        is_size = function is aten.sym_size.int
        self.changed = True
        first = next(iter(self._graph.nodes))
        place = self._graph.inserting_after(self._last) if self._last else self._graph.inserting_before(first)
        with place:
            made = self._graph.call_function(function, args)
        made.meta["val"] = values[0].shape[values[1]] if is_size else function(*values)
        self._known[function, args] = self._last = made
        return made


_REMOVED_OPERATORS = frozenset(
    {
        *(aten._assert_tensor_metadata.default, aten.sym_constrain_range.default),
        aten.sym_constrain_range_for_size.default,
    }
)


@frozen_dataclass
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
            if node.target in _REMOVED_OPERATORS:
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


@frozen_dataclass
class Guards(Pass):
    """Remove ``_assert_scalar`` of what torch knows about the inputs' sizes, and of what an earlier assertion says.

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
    """Return the asserted condition as a sympy expression, even if torch knows its outcome.

    An argument that is no comparison is returned as it is.
    """
    if not isinstance(argument, fx.Node):
        return argument
    if argument.target in _RELATIONS:
        # A data-dependent number is its own symbol here, not torch's conclusion.
        values: list[Any] = [one.meta["val"] if isinstance(one, fx.Node) else one for one in argument.args]
        terms = [
            value.node._expr if isinstance(one, fx.Node) and is_read_from_data(one) else expression(value)
            for one, value in zip(argument.args, values, strict=True)
        ]
        return _RELATIONS[argument.target](*map(sympy.sympify, terms), evaluate=False)
    value = argument.meta.get("val")
    condition = value.node.expr if isinstance(value, torch.SymBool) else argument
    return condition if getattr(condition, "free_symbols", None) else argument


def _meaning(condition: Any) -> object:
    """Return an inequality of integers in the form ``0 <= x``; anything else unchanged."""
    if isinstance(condition, (sympy.StrictLessThan, sympy.StrictGreaterThan)):
        whole = condition.lhs.is_integer and condition.rhs.is_integer
        return sympy.Le(0, condition.gts - condition.lts - 1, evaluate=False) if whole else condition
    if isinstance(condition, (sympy.LessThan, sympy.GreaterThan)):
        return sympy.Le(0, condition.gts - condition.lts, evaluate=False)
    return condition


def _depends_on_data(argument: Any) -> bool:
    """Return whether a condition depends on a data-dependent number, directly or indirectly."""
    if not isinstance(argument, fx.Node):
        return False
    value = argument.meta.get("val")
    if isinstance(value, torch.Tensor):
        return False
    return is_read_from_data(argument) or any(map(_depends_on_data, argument.all_input_nodes))


def _always_holds(argument: Any, condition: Any, *, on_data: bool) -> bool:
    if condition is True or not isinstance(argument, fx.Node):
        return condition is True
    if on_data:  # the size of a dimension is at least zero
        is_least = argument.target is operator.ge and bool(argument.args[1] == 0)
        return is_least and getattr(argument.args[0], "target", None) is aten.sym_size.int
    value = argument.meta["val"]
    return value is True or (isinstance(value, torch.SymBool) and statically_known_true(value))
