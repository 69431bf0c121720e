"""What the arguments of a Dynamo graph's calls are: inputs, weights and sizes.

Dynamo gives the weights with every call, and sizes that vary as numbers of their own. Weights are told by where Dynamo
found them; what a call changes is an input wherever it comes from, so that the change reaches the model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import ExportError
from trtcache.runtime.inputs import is_plain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import sympy
    from torch import fx

_OF_A_MODULE = re.compile(r"\._(parameters|buffers)\[")
_PART = re.compile(r"\['?([^'\]]+)'?\]|\.(\w+)")
_CONTAINERS = {"_modules", "_parameters", "_buffers"}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The places of a call's arguments, by what they are.

    Attributes:
        inputs: tensors that the engine takes, in this order.
        weights: tensors that the engine has in it, with names for people.
        sizes: numbers that are the size of an input: the input's place, and the dimension.
        numbers: other numbers; an engine is made for their values.
        fractions: tensors that Dynamo made of Python's floats; the graph reads each by ``item``.
        symbols: where the value of each symbol is among the arguments.
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
    """Return what each argument is.

    Args:
        placeholders: those of the graph.
        examples: the arguments of the call that Dynamo traced.
        changed: places of weights that calls change, beside those that Dynamo saw change.
        fixed: places of fractions that an engine is to be made for, as for numbers.

    Raises:
        ExportError: an argument is neither a plain tensor nor a whole number.
    """
    inputs: list[int] = []
    weights: dict[int, str] = {}
    ints: list[int] = []
    for place, (node, example) in enumerate(zip(placeholders, examples, strict=True)):
        if place in fixed:
            continue
        if isinstance(example, torch.Tensor) and is_plain(example):
            if place not in changed and _is_weight(node, example) and not _is_written(value_of(node)):
                weights[place] = f"{_readable(node)}_{place}"
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
    """Return what Dynamo computed for a node without data: a fake tensor or a number."""
    return node.meta.get("example_value")


def expression(size: Any) -> sympy.Expr:
    """Return a size as an expression, without asking for its value, which would make Dynamo guard it."""
    import sympy

    found: sympy.Expr = size.node.expr if hasattr(size, "node") else sympy.sympify(size)
    return found


def source_name(node: fx.Node) -> str:
    """Return the Python expression by which Dynamo finds an argument."""
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
    """Say whether Dynamo wrote into the tensor as it followed the program: also what lowering finds nobody reads.

    It does too for weights in one memory (2.13 makes the second one's fake by a write): they are inputs then.
    """
    return value.is_inference() or value._version > 0


def _readable(node: fx.Node) -> str:
    parts = [one or other for one, other in _PART.findall(source_name(node))]
    kept = [part for part in parts[1:] if part not in _CONTAINERS] or [node.name]
    return re.sub(r"\W", "_", "_".join(kept))


def _sizes(placeholders: Sequence[fx.Node], inputs: Sequence[int]) -> dict[sympy.Symbol, tuple[int, int]]:
    """Return for each symbol the first place and dimension of an input that is it."""
    found: dict[sympy.Symbol, tuple[int, int]] = {}
    for place in inputs:
        for dim, size in enumerate(value_of(placeholders[place]).shape):
            if type(size) is not int and (expr := expression(size)).is_Symbol:
                found.setdefault(expr, (place, dim))
    return found
