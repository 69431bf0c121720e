"""Classification of a Dynamo graph's arguments: inputs, weights and sizes.

Dynamo passes the weights with every call, and dynamic sizes as separate numbers. Weights are recognised by where Dynamo
found them; an argument that a call modifies is an input in any case, so that the change reaches the model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.errors import ExportError
from trtcache.runtime.inputs import is_plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import sympy

_OF_A_MODULE = re.compile(r"\._(parameters|buffers)\[")
_PART = re.compile(r"\['?([^'\]]+)'?\]|\.(\w+)")
_CONTAINERS = {"_modules", "_parameters", "_buffers"}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The indices of a call's arguments by role.

    Attributes:
        inputs: the engine's input tensors, in this order.
        weights: the engine's weights, with readable names.
        sizes: numbers that are an input's size: the input's index and the dimension.
        numbers: other numbers; an engine is specialised on their values.
        fractions: tensors that represent Python floats; the graph reads each with ``item``.
        symbols: the index of each symbol's value.
    """

    inputs: tuple[int, ...]
    weights: Mapping[int, str]
    sizes: Mapping[int, tuple[int, int]]
    numbers: tuple[int, ...]
    fractions: tuple[int, ...]
    symbols: Mapping[sympy.Symbol, int]


def read_arguments(
    placeholders: Sequence[fx.Node],
    examples: Sequence[Any],
    *,
    changed: Collection[int] = (),
    fixed: Collection[int] = (),
) -> Arguments:
    """Return the role of each argument.

    Args:
        placeholders: the graph's placeholders.
        examples: the arguments of the call that Dynamo traced.
        changed: indices of weights that calls modify, besides those that Dynamo detected.
        fixed: indices of fractions to specialise on, like numbers.

    Raises:
        ExportError: an argument is neither a plain tensor nor an integer.
    """
    inputs: list[int] = []
    weights: dict[int, str] = {}
    ints: list[int] = []
    for place, (node, example) in enumerate(zip(placeholders, examples, strict=True)):
        if place in fixed:
            continue
        if isinstance(example, torch.Tensor) and is_plain(example):
            if place not in changed and _is_weight(node, example) and not _is_written(value_of(node)):
                weights[place] = f"{_readable_name(node)}_{place}"
            else:
                inputs.append(place)
        elif isinstance(example, (int, torch.SymInt)) and not isinstance(example, bool):
            ints.append(place)
        else:
            raise ExportError("the graph", f"its argument {node.name} is a {type(example).__name__}")
    given = _sizes(placeholders, inputs)
    written = {place: expression(value_of(placeholders[place])) for place in ints}
    symbols = {expr: place for place, expr in written.items() if expr.is_Symbol}
    sizes = {place: given[expr] for place, expr in written.items() if expr in given}
    numbers = tuple(sorted({*fixed, *ints} - set(sizes)))
    fractions = tuple(place for place in inputs if _is_fraction(placeholders[place], examples[place]))
    return Arguments(tuple(inputs), weights, sizes, numbers, fractions, symbols)


def number(argument: Any) -> int | float:
    """Return a number argument's value; Dynamo passes floats as tensors."""
    value: int | float = argument.item() if isinstance(argument, torch.Tensor) else argument
    return value


def value_of(node: fx.Node) -> Any:
    """Return Dynamo's value for a node without data: a fake tensor or a number."""
    return node.meta.get("example_value")


def expression(size: Any) -> sympy.Expr:
    """Return a size as an expression, without reading its value, which would add a Dynamo guard."""
    import sympy

    found: sympy.Expr = size.node.expr if hasattr(size, "node") else sympy.sympify(size)
    return found


def source_name(node: fx.Node) -> str:
    """Return the Python expression that Dynamo reads an argument from."""
    name = getattr(getattr(node, "_dynamo_source", None), "name", "")
    return str(name() if callable(name) else name)  # a method before torch 2.10


def _is_weight(node: fx.Node, example: torch.Tensor) -> bool:
    value = value_of(node)
    if value.layout != torch.strided:
        return False
    fixed = all(type(size) is int for size in (*value.shape, *value.stride()))
    return fixed and (isinstance(example, torch.nn.Parameter) or bool(_OF_A_MODULE.search(source_name(node))))


def _is_fraction(node: fx.Node, example: torch.Tensor) -> bool:
    single = example.dim() == 0 and example.dtype is torch.float64 and example.device.type == "cpu"
    return single and all(user.op == "call_method" and user.target == "item" for user in node.users)


def _is_written(value: torch.Tensor) -> bool:
    """Return whether Dynamo traced a write to the tensor, even one that lowering removes as dead.

    It also does for weights that share memory (2.13 creates the second one's fake by a write): these are inputs then.
    """
    return value.is_inference() or value._version > 0


def _readable_name(node: fx.Node) -> str:
    parts = [one or other for one, other in _PART.findall(source_name(node))]
    kept = [part for part in parts[1:] if part not in _CONTAINERS] or [node.name]
    return re.sub(r"\W", "_", "_".join(kept))


def _sizes(placeholders: Sequence[fx.Node], inputs: Sequence[int]) -> dict[sympy.Symbol, tuple[int, int]]:
    """Return for each symbol the first input index and dimension that equal it."""
    found: dict[sympy.Symbol, tuple[int, int]] = {}
    for place in inputs:
        for dim, size in enumerate(value_of(placeholders[place]).shape):
            if type(size) is not int and (expr := expression(size)).is_Symbol:
                found.setdefault(expr, (place, dim))
    return found


def flat_module(
    graph_module: fx.GraphModule, arguments: Arguments, call: Sequence[Any], computed: Iterable[fx.Node]
) -> fx.GraphModule:
    """Return a module that takes the inputs and returns the ``computed`` nodes of Dynamo's graph.

    The weights of ``call`` are its buffers, sizes are read from the inputs, and other numbers are those of ``call``.
    Dynamo's graph is not modified.
    """
    graph, copies = fx.Graph(), dict[fx.Node, Any]()
    root = torch.nn.Module()
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    for place in arguments.inputs:
        copies[placeholders[place]] = graph.placeholder(placeholders[place].name)
    for place, name in arguments.weights.items():
        root.register_buffer(name, call[place].detach())
        copies[placeholders[place]] = graph.get_attr(name)
    for place, (source, dim) in arguments.sizes.items():
        copies[placeholders[place]] = graph.call_method("size", (copies[placeholders[source]], dim))
    for place in arguments.numbers:
        copies |= dict.fromkeys(_value_nodes(placeholders[place], call[place]), number(call[place]))
    _copy_parts(graph_module, root)
    for node in graph_module.graph.nodes:
        if node.op not in {"placeholder", "output"} and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in computed))
    return fx.GraphModule(root, graph)


def _value_nodes(placeholder: fx.Node, argument: Any) -> list[fx.Node]:
    """Return the nodes with a number's value: its placeholder, or if that is a tensor the nodes that read it."""
    return list(placeholder.users) if isinstance(argument, torch.Tensor) else [placeholder]


def _copy_parts(graph_module: fx.GraphModule, root: torch.nn.Module) -> None:
    """Copy the graph's submodules: bodies of higher-order operators, and constants."""
    for name, child in graph_module.named_children():
        root.add_module(name, child)
    for name, tensor in (*graph_module.named_buffers(recurse=False), *graph_module.named_parameters(recurse=False)):
        root.register_buffer(name, tensor.detach())


def dynamic_shapes(graph_module: fx.GraphModule, arguments: Arguments) -> tuple[dict[int, Any] | None, ...]:
    """Return the dynamic sizes of the inputs with Dynamo's ranges, in ``torch.export``'s format."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    return tuple(_dynamic(value_of(placeholders[place]).shape) for place in arguments.inputs)


def _dynamic(shape: Sequence[Any]) -> dict[int, Any] | None:
    found = {dim: _hint(size) for dim, size in enumerate(shape) if type(size) is not int}
    return found or None


def _hint(size: Any) -> Any:
    """Return a dynamic dimension with its bounds; torch infers further constraints."""
    bounds = size.node.shape_env.var_to_range.get(expression(size))
    if bounds is None:
        return torch.export.Dim.AUTO
    least, most = (int(bound) if bound.is_Integer else None for bound in (bounds.lower, bounds.upper))
    return torch.export.Dim.AUTO(min=least, max=most)
