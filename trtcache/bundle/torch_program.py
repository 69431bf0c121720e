"""What torch computes between engines, as JSON: a list of operators, and nothing that is code.

A graph is ``{"takes": n, "nodes": [[operator, arguments, named], ...], "gives": [...]}``. Among arguments a node is
``{"$node": place}``, where the first ``n`` places are what the part takes. Only operators that torch knows by name
can be read, and a few functions on numbers.
"""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.lowering.text import operator_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trtcache.digests import Json

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        f"_operator.{name}": getattr(operator, name)
        for name in (
            *("add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "invert", "le", "lshift", "lt", "mod", "mul"),
            *("ne", "neg", "not_", "or_", "pos", "pow", "rshift", "sub", "truediv", "xor"),
        )
    },
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "sqrt", "trunc")},
    **{f"torch.{name}": getattr(torch, name) for name in ("sym_float", "sym_int", "sym_max", "sym_min", "sym_not")},
    "torch.sym_ite": torch.sym_ite,
}
_NAMES = {function: name for name, function in _FUNCTIONS.items()}
_OPERATOR = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)")
_TORCH = re.compile(r"torch\.[a-z]\w*")
_TORCHS = (torch.dtype, torch.layout, torch.memory_format)
_DEPTH = 16


class MissingOperator(Exception):  # noqa: N818  # it is no failure of this module: who reads says what to do
    """An operator that this process does not know: its library has not been imported."""


def write(call: fx.GraphModule) -> dict[str, Json]:
    """Return the graph of a part as JSON.

    Raises:
        ValueError: it has an operator or an argument that has no name.
    """
    places: dict[fx.Node, int] = {}
    nodes: list[Json] = []
    gives: Json = []
    for node in call.graph.nodes:
        if node.op == "output":
            gives = [_written(one, places) for one in node.args[0]]
            continue
        if node.op == "call_function":
            named: dict[str, Json] = {name: _written(one, places) for name, one in node.kwargs.items()}
            nodes.append([_target_name(node), [_written(one, places) for one in node.args], named])
        elif node.op != "placeholder":
            raise ValueError(f"{node.name} is a {node.op}, and a file has operators only")
        places[node] = len(places)
    return {"takes": len(places) - len(nodes), "nodes": nodes, "gives": gives}


def read(written: Any) -> fx.GraphModule:
    """Return the part that ``write`` wrote.

    Raises:
        ValueError: it is none.
        MissingOperator: it has an operator that this process has not; the message names it.
    """
    graph = fx.Graph()
    nodes = [graph.placeholder(f"a{place}") for place in range(_count(written["takes"]))]
    for name, arguments, named in written["nodes"]:
        target = _target(name)
        args = tuple(_read(one, nodes) for one in arguments)
        nodes.append(graph.call_function(target, args, {str(key): _read(one, nodes) for key, one in named.items()}))
    graph.output(tuple(_read(one, nodes) for one in written["gives"]))
    return fx.GraphModule(torch.nn.Module(), graph)


def _count(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= 1 << 16:
        raise ValueError(f"a part that takes {number!r:.20} values")
    return number


def _target_name(node: fx.Node) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target._opname}.{target._overloadname}"
    if target in _NAMES:
        return _NAMES[target]
    raise ValueError(f"{operator_name(target)} ({node.name}) is no operator that a file can name")


def _target(name: Any) -> Callable[..., Any]:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    match = _OPERATOR.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(f"{name!r:.60} is no operator")
    try:
        found = getattr(getattr(getattr(torch.ops, match[1]), match[2]), match[3])
    except (AttributeError, RuntimeError):
        found = None
    if not isinstance(found, torch._ops.OpOverload):
        raise MissingOperator(f"operator {match[1]}::{match[2]} is not here")
    return found


def _written(value: Any, places: dict[fx.Node, int]) -> Json:
    match value:
        case fx.Node():
            return {"$node": places[value]}
        case None | bool() | int() | str():
            return value
        case float():
            return {"$float": value.hex()}
        case complex():
            return {"$complex": [value.real.hex(), value.imag.hex()]}
        case torch.device():
            return {"$device": str(value)}
        case slice():
            return {"$slice": [_written(one, places) for one in (value.start, value.stop, value.step)]}
        case tuple():
            return {"$tuple": [_written(one, places) for one in value]}
        case list():
            return [_written(one, places) for one in value]
    if isinstance(value, _TORCHS):
        return {"$torch": str(value)}
    raise ValueError(f"an argument of {type(value).__name__} cannot be written to a file")


def _read(written: Any, nodes: Sequence[fx.Node], depth: int = 0) -> Any:
    if depth > _DEPTH:
        raise ValueError("arguments that are nested too deeply")
    if written is None or isinstance(written, (bool, int, str)):
        return written
    if isinstance(written, list):
        return [_read(one, nodes, depth + 1) for one in written]
    ((kind, value),) = written.items()
    if kind == "$node":
        if type(value) is not int or not 0 <= value < len(nodes):
            raise ValueError("an operator takes what is not made yet")
        return nodes[value]
    if kind in {"$slice", "$tuple"}:
        values = [_read(one, nodes, depth + 1) for one in value]
        return slice(*values) if kind == "$slice" else tuple(values)
    return _scalar(kind, value)


def _scalar(kind: str, value: Any) -> Any:
    match kind:
        case "$float":
            return float.fromhex(value)
        case "$complex":
            return complex(*map(float.fromhex, value))
        case "$device":
            return torch.device(value)
        case "$torch" if _TORCH.fullmatch(value) and isinstance(getattr(torch, value[6:], None), _TORCHS):
            return getattr(torch, value[6:])
    raise ValueError(f"an argument of the kind {kind!r:.40}")
