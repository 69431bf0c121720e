"""JSON format of a partitioned program: engines by number, and torch partitions as lists of operators, without code.

A torch partition's graph is ``{"takes": n, "nodes": [[operator, arguments, named], ...], "gives": [...]}``. Among
arguments a node is ``{"$node": place}``, where the first ``n`` places are the partition's inputs. Only operators that
torch knows by name can be read, and a few functions on numbers.
"""

from __future__ import annotations

import json
import math
import operator
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx

from trtcache.lowering.operators import operator_name
from trtcache.partition.division import LeftInTorch, PartitionedProgram
from trtcache.partition.partitions import (
    Cluster,
    ConstantWire,
    EnginePartition,
    InputWire,
    PartitionOutput,
    SizeTensor,
    SizeWire,
    TorchPartition,
    WeightWire,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trtcache.digests import Json
    from trtcache.lowering.program import LoweredProgram
    from trtcache.partition.partitions import Wire
    from trtcache.runtime.executable import Executable

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


def write_graph(call: fx.GraphModule) -> dict[str, Json]:
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
            if isinstance(target := node.target, torch._ops.OpOverload):
                name = f"{target.namespace}.{target._opname}.{target._overloadname}"
            elif target in _NAMES:
                name = _NAMES[target]
            else:
                why = f"{operator_name(target)} ({node.name}) is not an operator that a file can name"
                raise ValueError(why)
            nodes.append([name, [_write_argument(one, places) for one in node.args], named])
        elif node.op != "placeholder":
            raise ValueError(f"{node.name} is a {node.op}, and a file has operators only")
        places[node] = len(places)
    return {"takes": len(places) - len(nodes), "nodes": nodes, "gives": gives}


def read_graph(written: Any) -> fx.GraphModule:
    """Parse a partition's graph.

    Raises:
        ValueError: it is malformed.
        MissingOperator: an operator is not registered in this process; the message names it.
    """
    graph, takes = fx.Graph(), written["takes"]
    if type(takes) is not int or not 0 <= takes <= 1 << 16:
        raise ValueError(f"a part that takes {takes!r:.20} values")
    nodes = [graph.placeholder(f"a{place}") for place in range(takes)]
    for name, arguments, named in written["nodes"]:
        target = _find_operator(name)
        args = tuple(_read_argument(one, nodes) for one in arguments)
        nodes.append(
            graph.call_function(target, args, {str(key): _read_argument(one, nodes) for key, one in named.items()})
        )
    graph.output(tuple(_read_argument(one, nodes) for one in written["gives"]))
    return fx.GraphModule(torch.nn.Module(), graph)


def _find_operator(name: Any) -> Callable[..., Any]:
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


def write_partitions(division: PartitionedProgram) -> dict[str, Json]:
    """Return the partitions as JSON; engines are stored by number, and described by their own entries."""
    parts: list[Json] = []
    for part in division.parts:
        record: dict[str, Json] = {"takes": [_write_wire(one) for one in part.takes], "gives": part.gives}
        if isinstance(part, EnginePartition):
            slots: list[Json] = [list(slot.names) for slot in part.program.interface.slots]
            parts.append({"kind": "engine", **record, "weights": dict(part.weights), "slots": slots})
        else:
            parts.append({"kind": "torch", **record, "graph": write_graph(part.call)})
    return {
        "parts": parts,
        "results": [_write_wire(one) for one in division.results],
        "stores": [[name, _write_wire(one)] for name, one in division.stores],
        "left": [asdict(one) for one in division.left],
    }


def read_partitions(written: Any, interfaces: Mapping[int, Executable]) -> PartitionedProgram:
    """Parse partitions; ``interfaces`` are those of the engines' entries, by partition number.

    Raises:
        ValueError: they are inconsistent.
        MissingOperator: an operator is not registered in this process.
    """
    parts: list[EnginePartition | TorchPartition] = []

    def read_wire(wire: Any) -> Wire:
        """Parse a wire, and check that an earlier partition computes it."""
        made = _read_wire(wire)
        if isinstance(made, PartitionOutput) and not (
            0 <= made.part < len(parts) and 0 <= made.place < parts[made.part].gives
        ):
            raise ValueError("a partition uses a value that no earlier partition computes")
        return made

    for number, record in enumerate(written["parts"]):
        takes, gives = tuple(read_wire(wire) for wire in record["takes"]), record["gives"]
        if record["kind"] == "engine":
            engine, weights = interfaces[number], {str(own): str(name) for own, name in record["weights"].items()}
            if len(engine.interface.inputs) != len(takes) or len(engine.interface.outputs) != gives:
                raise ValueError("an engine has other inputs or outputs than its partition")
            program = cast("LoweredProgram", engine)
            parts.append(EnginePartition(program, takes, int(gives), weights, Cluster((), in_torch=False)))
        else:
            graph = record["graph"]
            call = read_graph(graph)
            if graph["takes"] != len(takes) or len(graph["gives"]) != gives:
                raise ValueError("a torch partition has other inputs or outputs than declared")
            nodes = tuple(node for node in call.graph.nodes if node.op == "call_function")  # needed for is_sequential
            parts.append(TorchPartition(call, takes, int(gives), Cluster(nodes, in_torch=True)))
    results = tuple(read_wire(one) for one in written["results"])
    stores = tuple((str(name), read_wire(one)) for name, one in written["stores"])
    left = tuple(LeftInTorch(**{name: str(text) for name, text in one.items()}) for one in written["left"])
    return PartitionedProgram(tuple(parts), results, stores, left)


def _write_wire(wire: Wire) -> list[Json]:
    match wire:
        case InputWire(place):
            return ["input", place]
        case WeightWire(name):
            return ["weight", name]
        case ConstantWire(name):
            return ["constant", name]
        case PartitionOutput(part, place):
            return ["made", part, place]
        case SizeWire(text):
            return ["size", json.loads(text)]
        case SizeTensor(size):
            return ["carrier", json.loads(size.text)]


def _read_wire(written: Any) -> Wire:
    match written:
        case ["input", int(place)]:
            return InputWire(place)
        case ["weight", str(name)]:
            return WeightWire(name)
        case ["constant", str(name)]:
            return ConstantWire(name)
        case ["made", int(part), int(place)]:
            return PartitionOutput(part, place)
        case ["size", size]:
            return SizeWire.of(size)
        case ["carrier", size]:
            return SizeTensor(SizeWire.of(size))
    raise ValueError(f"a wire {written!r:.40}")
