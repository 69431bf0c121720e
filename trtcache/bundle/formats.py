"""JSON formats of a partitioned program and of pytree structures.

A torch partition's graph is ``{"takes": n, "nodes": [[operator, arguments, named], ...], "gives": [...]}``. Among
arguments a node is ``{"$node": place}``, where the first ``n`` places are the partition's inputs. Only operators that
torch knows by name can be read, and a few functions on numbers.

``torch.utils._pytree`` stores class names, and reads a structure only if those classes are registered, which needs the
model's library. Here each node also has the names of its children, so that a mapping with these names can replace a
missing class. Classes are looked up only among modules that are already imported. There are no annotations and no
code.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx
from torch.utils import _pytree as pytree

from trtcache.backends.protocol import interface_document
from trtcache.bundle.archive import write_signature
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
    Wire,
)
from trtcache.runtime.argument_order import (
    FACTORIES,
    PLAIN,
    Node,
    OutputContext,
    children_of,
    find_class,
    flatten_output,
    make_output,
    plain_key,
    read_nodes,
    type_without_torch,
)
from trtcache.runtime.argument_order import Output as Output
from trtcache.weights.slots import weight_map

if TYPE_CHECKING:
    from trtcache.digests import Json
    from trtcache.lowering.program import LoweredProgram
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.module_call import CallSignature


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


def describe_program(executable: Executable, call: CallSignature) -> dict[str, object]:
    """Return what the document of a program and the file alias of one have in common: all but its engines.

    Raises:
        ValueError: the structure of its arguments or its output cannot be written.
    """
    interface = executable.interface
    return {
        "interface": interface_document(interface, executable.constants),
        "weight_map": weight_map(interface.weights),
        "slots": [list(slot.names) for slot in interface.slots],
        "known": sorted(executable.known),
        "sources": {name: asdict(content) for name, content in executable.constant_contents.items()},
        "arguments": write_structure(call.in_spec),
        "output": write_structure(call.out_spec),
        "signature": write_signature(call.signature),
    }


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


_KINDS = {kind: name for name, kind in PLAIN.items()}


def _flatten_with_keys(output: Output) -> tuple[list[tuple[Any, Any]], OutputContext]:
    values, context = flatten_output(output)
    return [(pytree.MappingKey(key), value) for key, value in zip(output, values, strict=True)], context


pytree.register_pytree_node(
    Output,
    flatten_output,
    make_output,
    flatten_with_keys_fn=_flatten_with_keys,
    serialized_type_name="trtcache.Output",
)


def write_structure(spec: pytree.TreeSpec) -> Json:
    """Return a structure as JSON: None for a leaf.

    Raises:
        ValueError: a file cannot name the factory of a ``defaultdict``.
    """
    if spec.is_leaf():
        return None
    children: list[Json] = [write_structure(child) for child in children_of(spec)]
    kind, context = spec.type, spec.context
    if kind in {tuple, list}:
        return {"kind": _KINDS[kind], "parts": children}
    if kind in {dict, OrderedDict}:
        return {"kind": _KINDS[kind], "keys": list(map(plain_key, context)), "parts": children}
    if kind is defaultdict:
        factories = [name for name, one in FACTORIES.items() if one is context[0]]
        if not factories:
            raise ValueError(f"a defaultdict has the factory {context[0]!r:.60}, which a file cannot name")
        return {"kind": "default", "of": factories[0], "keys": list(map(plain_key, context[1])), "parts": children}
    if kind is deque:
        return {"kind": "deque", "longest": context, "parts": children}
    if pytree.is_structseq_class(kind):
        return {"kind": "torch", "name": kind.__name__, "parts": children}
    if kind is namedtuple:
        return {"kind": "named", "name": _name(context), "keys": list(_fields(context)), "parts": children}
    return {**_class_node(spec), "parts": children}


def read_structure(written: Any) -> pytree.TreeSpec:
    """Parse a structure.

    Raises:
        ValueError, KeyError, TypeError: it is malformed, or nested more than 64 deep.
    """
    return _spec_of(read_nodes(written, _find_node_type))


def _spec_of(node: Node) -> pytree.TreeSpec:
    if node.is_leaf():
        return pytree.tree_structure(0)  # LeafSpec() warns in torch 2.13
    return pytree.TreeSpec(node.type, node.context, list(map(_spec_of, node.children)))


def without_classes(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return a structure with tuples in place of classes that ``torch.export.save`` cannot write."""
    if spec.is_leaf():
        return spec
    children = children_of(spec)
    kind, context = spec.type, spec.context
    try:
        pytree.treespec_dumps(pytree.TreeSpec(kind, context, [pytree.tree_structure(0) for _ in children]))
    except (TypeError, NotImplementedError, AttributeError):  # the last: a defaultdict without a factory
        kind, context = tuple, None
    return pytree.TreeSpec(kind, context, [without_classes(child) for child in children])


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(getattr(kind, "_fields", ()))


def _class_node(spec: pytree.TreeSpec) -> dict[str, Json]:
    kind = spec.type
    if kind is Output:
        name, keys, names = spec.context
        return {"kind": "class", "name": name, "context": None, "keys": list(keys), "names": list(names)}
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(kind)
    serialized = getattr(known, "serialized_type_name", None)
    name = serialized if isinstance(serialized, str) and "NO_SERIALIZED" not in serialized else _name(kind)
    context: Json = None
    try:
        dumped = known.to_dumpable_context(spec.context) if known and known.to_dumpable_context else spec.context
        context = json.loads(json.dumps(dumped))
        is_whole = _same(context, dumped)  # JSON has no tuples and no keys but texts
    except Exception:  # noqa: BLE001  # the code of the class can raise anything
        context, is_whole = None, False
    fields = list(getattr(kind, "__dataclass_fields__", ()))
    written: dict[str, Json] = {"kind": "class", "name": name, "context": context, "keys": [*_keys(spec)]}
    return {**written, "names": fields, "is_whole": is_whole}


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same types throughout."""
    if type(one) is not type(other) or (isinstance(one, (dict, list)) and len(one) != len(other)):
        return False
    if isinstance(one, dict):
        return all(key in other and _same(value, other[key]) for key, value in one.items())
    return all(map(_same, one, other)) if isinstance(one, list) else bool(one == other)


def _keys(spec: pytree.TreeSpec) -> list[str]:
    """Return the names of a node's children, or their indices."""
    node, count, context = pytree.SUPPORTED_NODES[spec.type], len(children_of(spec)), spec.context
    keys: list[Any] = []
    if node.flatten_with_keys_fn is not None:
        with suppress(Exception):  # the code of the class can raise anything
            whole = node.unflatten_fn([()] * count, context)
            keys = [key for key, _ in node.flatten_with_keys_fn(whole)[0]]
    names = [str(getattr(key, "key", getattr(key, "name", place))) for place, key in enumerate(keys)]
    # Otherwise the context, or a list in it (of a dataclass's fields), may be the names.
    inside = [one for one in context if isinstance(one, list)] if isinstance(context, (list, tuple)) else []
    for known in (names, context, *inside):
        is_list = isinstance(known, (list, tuple)) and all(isinstance(name, str) for name in known)
        if is_list and len(known) == len(set(known)) == count:
            return list(known)
    return list(map(str, range(count)))


def _find_node_type(written: Any) -> tuple[type, Any]:
    """Return a class registered with torch and its context, or ``Output``."""
    name, kind = written["name"], None
    if written["kind"] == "torch":  # one of torch's classes for several results (torch.max)
        kind = vars(torch.return_types).get(name)
        if not isinstance(kind, type) or kind not in pytree.SUPPORTED_NODES:
            raise ValueError(f"torch has no return type {name!r:.40}")
        return kind, None
    context = written["context"]
    is_whole = written.get("is_whole", context is not None)  # files of before do not say whether None is the context
    kind = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name) or find_class(name)
    if isinstance(kind, type) and kind in pytree.SUPPORTED_NODES and kind is not Output and is_whole:
        read_context = getattr(pytree.SUPPORTED_SERIALIZED_TYPES.get(kind), "from_dumpable_context", None)
        return kind, read_context(context) if read_context else context
    return type_without_torch(written)
