"""Utilities for passes: arguments, sizes, weights and views of nodes, and the canonical order of a graph."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx
from torch.utils._sympy.symbol import SymT, symbol_is_type

from trtcache.config.frozen import frozen_dataclass
from trtcache.weights.recipes import Recipe, WeightRef
from trtcache.weights.slots import is_fake, storage_id

aten = torch.ops.aten


@frozen_dataclass
class TorchExecuted:
    """An operator that torch executes, hidden from passes: it equals no operator that they know."""

    operator: torch._ops.OperatorBase

    @property
    def __name__(self) -> str:
        return f"torch_executed_{self.operator}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator."""
        return self.operator(*args, **kwargs)


def operator_of(node: fx.Node) -> Any:
    """Return what a node calls, also if that is hidden from passes."""
    return node.target.operator if isinstance(node.target, TorchExecuted) else node.target


def tensor_of(node: object) -> torch.Tensor | None:
    """Return the fake tensor of a node, or None."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def expression(size: Any) -> Any:
    """Return a size as an int or a sympy expression, without adding a guard."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


def same_sizes(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether two shapes, or two lists of strides, are equal for all values of their symbols."""
    return len(left) == len(right) and all(
        one is other or _is_same_size(one, other) for one, other in zip(left, right, strict=True)
    )


def _is_same_size(one: Any, other: Any) -> bool:
    """Return whether two sizes are equal, and not only because a data-dependent one is asserted to equal the other.

    torch replaces the size of ``x[: n.item()]`` by that of ``x`` if an operator needs them to be equal. The assertion
    reads the size of the slice: without the slice it would compare the size of ``x`` with itself.
    """
    own = [size.node._expr if isinstance(size, torch.SymInt) else size for size in (one, other)]
    return own[0] == own[1] or (expression(one) == expression(other) and not any(map(is_data_dependent, own)))


def is_data_dependent(number: Any) -> bool:
    """Return whether a sympy expression has the symbol of a number that is read from a tensor."""
    symbols = getattr(number, "free_symbols", ())
    return any(symbol_is_type(one, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)) for one in symbols)


def same_shape(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two fake tensors have the same shape."""
    return same_sizes(left.shape, right.shape)


def is_static(sizes: Sequence[Any]) -> bool:
    """Return whether no size is symbolic."""
    return all(type(size) is int for size in sizes)


def is_contiguous(value: torch.Tensor) -> bool:
    """Return whether a fake tensor is contiguous; torch's own check of symbolic sizes would add a guard."""
    if is_static(value.shape):
        return value.is_contiguous()
    expected: Any = 1
    for size, step in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if expression(step) != expression(expected):
            return False
        expected *= size
    return True


def example_of(size: Any, unknown: int) -> int:
    """Return a size or stride at the sizes of the example; ``unknown`` if it depends on values."""
    number = size.node.hint if isinstance(size, torch.SymInt) else size
    return unknown if number is None else int(number)


def shape_environment(nodes: Iterable[fx.Node]) -> Any:
    """Return the ``ShapeEnv`` of the first symbolic size among nodes; None if there is none."""
    for node in nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def set_arguments(node: fx.Node, values: Sequence[Any]) -> None:
    """Set a node's arguments in the order of its operator's schema, without those that equal their defaults."""
    schema = _parameters(node.target)
    given = len(values)
    while given and not schema[given - 1].is_required:
        value, default = values[given - 1], schema[given - 1].default
        if type(default) is not type(value) or default != value:
            break
        given -= 1
    positional = sum(not one.is_keyword for one in schema)
    node.args = tuple(values[: min(given, positional)])
    node.kwargs = {schema[place].name: values[place] for place in range(positional, given)}


@functools.cache
def parameter_places(operator: object) -> dict[str, int]:
    """Return the index of each argument of an operator by name; empty without a schema."""
    if not isinstance(operator, torch._ops.OpOverload):
        return {}
    return {one.name: place for place, one in enumerate(_parameters(operator))}


def calls_of(graph: fx.Graph, targets: Iterable[Any]) -> list[fx.Node]:
    """Return the calls of some operators in graph order, without walking the whole graph."""
    found = [graph.find_nodes(op="call_function", target=target, sort=False) for target in targets]
    return sorted(node for nodes in found for node in nodes)


def insert_call(before: fx.Node, target: Any, args: tuple[Any, ...], value: object) -> fx.Node:
    """Insert a call before a node and return it; ``value`` is its fake result."""
    with before.graph.inserting_before(before):
        made = before.graph.call_function(target, args)
    made.meta["val"] = value
    return made


def insert_cast(before: fx.Node, node: fx.Node, value: torch.Tensor) -> fx.Node:
    """Insert a cast of a node before another one, and return it; ``value`` is its fake result."""
    made = insert_call(before, aten._to_copy.default, (node,), value)
    made.kwargs = {"dtype": value.dtype}
    return made


def replace(node: fx.Node, by: fx.Node) -> None:
    """Replace a node by another one, and erase it."""
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)


@functools.cache
def makes_view(target: object) -> bool:
    """Return whether an operator's result shares the memory of an argument."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return any(one.alias_info is not None for one in target._schema.returns)


def is_number(value: object) -> bool:
    """Return whether a size expression is a plain number."""
    return isinstance(value, (int, sympy.Integer))


def arguments(node: fx.Node) -> list[Any]:
    """Return every argument of a node in order, defaults included.

    ``add(a, b)``, ``add(a, other=b)`` and ``add(a, b, alpha=1)`` give the same. For a function without a schema, return
    its positional arguments, then its keyword arguments sorted by name.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        given, kwargs = list(node.args), node.kwargs
        for name, default, *_ in _parameters(target)[len(given) :]:
            given.append(kwargs.get(name, default))
        return given
    return [*node.args, *(one for _, one in sorted(node.kwargs.items()))]


class _Parameter(NamedTuple):
    name: str
    default: Any
    is_required: bool
    is_keyword: bool


@functools.cache
def _parameters(operator: torch._ops.OpOverload) -> tuple[_Parameter, ...]:
    return tuple(
        _Parameter(
            argument.name,
            argument.default_value if argument.has_default_value() else None,
            not argument.has_default_value(),
            argument.kwarg_only,
        )
        for argument in operator._schema.arguments
    )


# They read strides, or require dense ones: the layout of their arguments must not change.
AS_STRIDED = (aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default)
_STRIDE_READERS = frozenset(
    {
        *AS_STRIDED,
        *(aten.view.dtype, aten.view_copy.dtype, aten.view_as_complex.default, aten.view_as_complex_copy.default),
    }
)
_NAMESPACES = frozenset({"aten", "prims", "_operator", "math"})


def reads_strides(node: fx.Node) -> bool:
    """Return whether a node's result may depend on the layout of its arguments; custom and hidden operators' may."""
    if node.op != "call_function":
        return False
    if node.target in _STRIDE_READERS:
        return True
    namespace = getattr(node.target, "namespace", None) or getattr(node.target, "__module__", None)
    return namespace not in _NAMESPACES


@functools.cache
def accepts_any_layout(target: object) -> bool:
    """Return whether an operator computes with any layout of its arguments: views and elementwise operators do."""
    if not isinstance(target, torch._ops.OpOverload):
        return True
    return makes_view(target) or torch.Tag.pointwise in target.tags


def contiguous_arguments(node: fx.Node) -> list[int]:
    """Return the places of arguments that are contiguous in the exported program, and may no longer be.

    Passes remove copies that only change a layout, and kernels of torch can require one: GroupNorm's raises for another
    on a CPU. Operators that read strides still have their layouts, and a copy would hide a write to an argument.
    """
    if accepts_any_layout(node.target) or reads_strides(node) or is_mutating(node):
        return []
    return [
        place
        for place in node.meta.get("contiguous", ())
        if place < len(node.args)  # torch leaves out trailing arguments that are defaults
        and (value := tensor_of(source := node.args[place])) is not None
        and (source.op == "call_function" or not is_contiguous(value))
    ]


def feed_stride_readers(graph: fx.Graph, readers: Collection[object] = ()) -> set[fx.Node]:
    """Return the nodes that stride readers get, directly or through other nodes: their layouts must not change.

    An operator that draws random numbers is one: it draws them in the order of memory.

    Args:
        graph: the graph.
        readers: the operators to consider; by default all whose result may depend on the layout of an argument.
    """
    calls = (node for node in graph.nodes if node.op == "call_function")
    pending = [
        node
        for node in calls
        if (operator_of(node) in readers if readers else reads_strides(node) or draws_random_numbers(node))
    ]
    found: set[fx.Node] = set()
    while pending:
        inputs = set(pending.pop().all_input_nodes) - found
        found |= inputs
        pending += inputs
    return found


PHYSICAL: Mapping[Any, Any] = {
    aten._conj.default: aten._conj_physical.default,
    aten._neg_view.default: aten.neg.default,
}
"""Operators that conjugate or negate lazily, by a bit of their result, and those that compute the same values."""


def lazy_constants(nodes: Iterable[fx.Node]) -> list[fx.Node]:
    """Return the calls that conjugate or negate lazily what depends on no input: on weights and constants alone.

    Args:
        nodes: the nodes in the order in which they run; a placeholder is an input unless it is an engine's weight.
    """
    found: list[fx.Node] = []
    varying: set[fx.Node] = set()
    for node in nodes:
        is_input = node.op == "placeholder" and "engine_weight" not in node.meta
        if is_input or not varying.isdisjoint(node.all_input_nodes):
            varying.add(node)
        elif node.target in PHYSICAL:
            found.append(node)
    return found


def is_returned(node: fx.Node) -> bool:
    """Return whether the output exposes the memory of a node, itself or through a view."""
    return any(reaches_output(user) for user in node.users)


def reaches_output(user: fx.Node) -> bool:
    """Return whether a user is the output, or a view or an item of several tensors that the output exposes."""
    return user.op == "output" or ((is_view(user) or user.target is operator.getitem) and is_returned(user))


def is_view(node: fx.Node) -> bool:
    """Return whether a node may share the memory of its argument; an item of several views does as they do."""
    if node.target is operator.getitem:
        return is_view(node.args[0])  # type: ignore[arg-type]  # operators return tuples as nodes
    target = operator_of(node)
    if target is aten.reshape.default or makes_view(target):
        return True
    # A composite operator can return a view that its schema does not declare: meshgrid, type_as, einsum. Only one that
    # is hidden is still in a graph for this reason; those that backends keep compute new tensors.
    return target is not node.target and bool(node.all_input_nodes) and _is_composite(target)


def memory_owner(node: fx.Node) -> fx.Node:
    """Return the node whose memory a node may share, looking through views."""
    while node.op == "call_function" and is_view(node):
        node = node.all_input_nodes[0]
    return node


@functools.cache
def _is_composite(target: object) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return isinstance(target, torch._ops.OpOverload) and target.has_kernel_for_dispatch_key(key)


def canonical_order(graph: fx.Graph) -> tuple[list[fx.Node], dict[fx.Node, list[Any]]]:
    """Return the nodes in the order of a depth-first walk from the outputs, and the arguments of each.

    The walk visits arguments in the order of the operator's schema, so that statement order, names and dead code do not
    matter. Before a node that draws random numbers or has a side effect it visits the previous such node: these keep
    the order in which they run. Weights that are stored and never read follow, and nodes with side effects that no
    result depends on; unused inputs and the output node are left out.
    """
    found: dict[fx.Node, list[Any]] = {}
    order: list[fx.Node] = []
    effects = [node for node in graph.nodes if not node.users and node.op == "call_function"]
    previous = {after: before for before, after in pairwise(filter(is_ordered, graph.nodes))}

    def needs(node: fx.Node) -> Iterator[fx.Node]:
        found[node] = arguments(node)
        return nodes_in((previous.get(node), found[node]))

    stored = stored_weights(graph)
    unread = [
        node for node in graph.find_nodes(op="placeholder") if not node.users and node.meta.get("weight") in stored
    ]
    unread.sort(key=lambda node: stored[node.meta["weight"]])
    for root in (*nodes_in(graph.output_node().args), *unread, *effects):
        if root in found:
            continue
        stack = [(root, needs(root))]
        while stack:
            node, rest = stack[-1]
            for used in rest:
                if used not in found:
                    stack.append((used, needs(used)))
                    break
            else:
                order.append(node)
                stack.pop()
    return order, found


def stored_weights(graph: fx.Graph) -> dict[object, int]:
    """Return the names of the weights that a call changes, each with its place in the output."""
    roles = graph.output_node().meta.get("roles", ())
    return {role.target: place for place, role in enumerate(roles) if role.kind == "weight"}


@functools.cache
def is_random(target: object) -> bool:
    """Return whether an operator draws random numbers."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def draws_random_numbers(node: fx.Node) -> bool:
    """Return whether a call draws random numbers; arguments may disable it, as for attention without dropout."""
    if not is_random(node.target):
        return False
    given = dict(zip(parameter_places(node.target), arguments(node), strict=True))
    disabled = given.get("train") is False or given.get("training") is False
    return not (disabled or given.get("dropout_p") == 0 or given.get("dropout") == 0)


def is_mutating(node: fx.Node) -> bool:
    """Return whether an operator writes into an argument."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def written_nodes(node: fx.Node) -> list[fx.Node]:
    """Return the arguments that an operator writes into."""
    if not is_mutating(node):
        return []
    values = zip(node.target._schema.arguments, arguments(node), strict=True)  # type: ignore[union-attr]  # an operator
    return [one for parameter, value in values if parameter.is_write for one in nodes_in(value)]


def is_check(node: fx.Node) -> bool:
    """Return whether a node only raises if a condition fails."""
    return node.op == "call_function" and node.meta.get("val") is None and not node.users


def is_ordered(node: fx.Node) -> bool:
    """Return whether a node must keep its order among such nodes: it draws random numbers or has a side effect."""
    if node.op != "call_function" or is_check(node):
        return False
    return draws_random_numbers(node) if is_random(node.target) else node.is_impure()


def nodes_in(argument: Any) -> Iterator[fx.Node]:
    """Yield the nodes in an argument, including in lists, mappings and slices, in order."""
    if isinstance(argument, fx.Node):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for element in argument:
            yield from nodes_in(element)
    elif isinstance(argument, dict):
        yield from nodes_in([one for _, one in sorted(argument.items())])
    elif isinstance(argument, slice):
        yield from nodes_in((argument.start, argument.stop, argument.step))


def identity_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what two names of one tensor have in common: its place in memory, its sizes and strides, and its kind."""
    # A fake tensor has no address; `data_ptr` of all of them is 0.
    place = (storage_id(tensor), tensor.storage_offset()) if is_fake(tensor) else tensor.data_ptr()
    return (place, tensor.shape, tensor.stride(), *kind_of(tensor))


def kind_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return how a tensor's memory is read: its dtype and device, and whether it is conjugated or negated lazily."""
    return tensor.dtype, tensor.device, tensor.is_conj(), tensor.is_neg()


def covers_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor begins where its memory does, and has as many elements as fit there."""
    return not tensor.storage_offset() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def group_tied(names: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Group names of tensors that are the same tensor: each name to all names of its group, in order."""
    groups: dict[object, list[str]] = {}
    for name, tensor in names.items():
        groups.setdefault(identity_of(tensor) if tensor.numel() else name, []).append(name)
    return {name: tuple(group) for group in groups.values() for name in group}


def recipe_of(node: fx.Node) -> Recipe | None:
    """Return the recipe of a weight's node in terms of the model's names; None if it is not a weight."""
    if "weight" in node.meta:
        return WeightRef(node.meta["weight"])
    recipe: Recipe | None = node.meta.get("recipe")
    return recipe
