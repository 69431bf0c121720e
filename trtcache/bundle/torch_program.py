"""JSON format of torch partitions: a list of operators, without code.

A graph is ``{"takes": n, "nodes": [[operator, arguments, named], ...], "gives": [...]}``. Among arguments a node is
``{"$node": place}``, where the first ``n`` places are the partition's inputs. Only operators that torch knows by name
can be read, and a few functions on numbers.
"""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.lowering.operators import operator_name

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


class MissingOperator(Exception):  # noqa: N818  # the caller handles it: it is not an error of this module
    """An operator that is not registered in this process: its library has not been imported."""


def write(call: fx.GraphModule) -> dict[str, Json]:
    """Return a partition's graph as JSON.

    Raises:
        ValueError: an operator or argument cannot be represented.
    """
    places: dict[fx.Node, int] = {}
    nodes: list[Json] = []
    gives: Json = []
    for node in call.graph.nodes:
        if node.op == "output":
            gives = [_write_argument(one, places) for one in node.args[0]]
            continue
        if node.op == "call_function":
            named: dict[str, Json] = {name: _write_argument(one, places) for name, one in node.kwargs.items()}
            nodes.append([_target_name(node), [_write_argument(one, places) for one in node.args], named])
        elif node.op != "placeholder":
            raise ValueError(f"{node.name} is a {node.op}, and a file has operators only")
        places[node] = len(places)
    return {"takes": len(places) - len(nodes), "nodes": nodes, "gives": gives}


def read(written: Any) -> fx.GraphModule:
    """Parse a partition's graph.

    Raises:
        ValueError: it is malformed.
        MissingOperator: an operator is not registered in this process; the message names it.
    """
    graph = fx.Graph()
    nodes = [graph.placeholder(f"a{place}") for place in range(_count(written["takes"]))]
    for name, arguments, named in written["nodes"]:
        target = _target(name)
        args = tuple(_read_argument(one, nodes) for one in arguments)
        nodes.append(
            graph.call_function(target, args, {str(key): _read_argument(one, nodes) for key, one in named.items()})
        )
    graph.output(tuple(_read_argument(one, nodes) for one in written["gives"]))
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
    raise ValueError(f"{operator_name(target)} ({node.name}) is not an operator that a file can name")


def _target(name: Any) -> Callable[..., Any]:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    match = _OPERATOR.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(f"{name!r:.60} is not an operator")
    try:
        found = getattr(getattr(getattr(torch.ops, match[1]), match[2]), match[3])
    except (AttributeError, RuntimeError):
        found = None
    if not isinstance(found, torch._ops.OpOverload):
        raise MissingOperator(f"operator {match[1]}::{match[2]} is not registered")
    return found


def _write_argument(value: Any, places: dict[fx.Node, int]) -> Json:
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
            return {"$slice": [_write_argument(one, places) for one in (value.start, value.stop, value.step)]}
        case tuple():
            return {"$tuple": [_write_argument(one, places) for one in value]}
        case list():
            return [_write_argument(one, places) for one in value]
    if isinstance(value, _TORCHS):
        return {"$torch": str(value)}
    raise ValueError(f"an argument of {type(value).__name__} cannot be written to a file")


def _read_argument(written: Any, nodes: Sequence[fx.Node], depth: int = 0) -> Any:
    if depth > _DEPTH:
        raise ValueError("arguments that are nested too deeply")
    if written is None or isinstance(written, (bool, int, str)):
        return written
    if isinstance(written, list):
        return [_read_argument(one, nodes, depth + 1) for one in written]
    ((kind, value),) = written.items()
    if kind == "$node":
        if type(value) is not int or not 0 <= value < len(nodes):
            raise ValueError("an operator uses a value that is not computed yet")
        return nodes[value]
    if kind in {"$slice", "$tuple"}:
        values = [_read_argument(one, nodes, depth + 1) for one in value]
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
