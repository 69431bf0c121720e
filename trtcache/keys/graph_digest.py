"""The digest of a lowered graph: a Merkle digest for each node, and one over the program's outputs.

A node's digest covers its operator, every argument with defaults filled in, the digests of its operands in order, and
dtype, shape and device type of its result. Inputs enter by their leaf in the call, weights by slot number with dtype,
shape and strides, constants by content. Names of nodes and parameters, the order of unrelated statements and dead code
therefore do not matter.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.digests import Digest, Json, hash_bytes, is_negative_nan
from trtcache.errors import CanonicalizationError, ExportError
from trtcache.lowering.operators import TORCHS_OWN, is_arithmetic, operator_name, why_unknown
from trtcache.lowering.rewrites.cleanup import mergeable
from trtcache.lowering.rewriting import expression, is_random, memory_owner, parameter_places
from trtcache.weights import recipes

if TYPE_CHECKING:
    from trtcache.lowering.program import LoweredProgram
    from trtcache.lowering.symbols import Symbols


_PLAIN = frozenset({bool, int, str})
_canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def graph_records(program: LoweredProgram, declared: Collection[str] = ()) -> tuple[list[Json], Digest]:
    """Return the graph as one record for each node, and its digest.

    A record is ``[operator, arguments, value, uses]``: in the arguments an operand is ``{"$use": k}``, the k-th of
    ``uses``, which are indices into the list, so that a record does not depend on its position. A node's digest is over
    its record without ``uses``, as canonical JSON with a length prefix, and the digests of its operands, 32 bytes each.
    The last record is the output, ``[output, results, uses]``. If results are views of one of several nodes that
    compute the same, it has before ``uses`` for each use the number of the first one that shares its memory.

    Args:
        program: a lowered program.
        declared: custom operators (``mylib::scale``) and namespaces of them (``mylib``) whose versions are elsewhere in
            the key.

    Raises:
        CanonicalizationError: a node has no stable description; the message names it.
    """
    places: dict[fx.Node, int] = {}
    digests: dict[fx.Node, bytes] = {}
    records: list[Json] = []
    writer = _Writer(program.symbols, declared)
    # Random operators are numbered in execution order, which decides what each one draws.
    calls = [node for node in program.graph_module.graph.nodes if node.op == "call_function"]
    draw_numbers = {node: number for number, node in enumerate(node for node in calls if is_random(node.target))}
    for node in program.order:
        head, text, uses = writer.record(node, program.arguments[node])
        if node.op == "call_function" and not mergeable(node):
            head.append(draw_numbers.get(node, len(records)))  # two draws are not equal to one
            text = _canonical_json(head)
        digests[node] = hash_bytes(b"".join([_frame(text), *[digests[used] for used in uses]]))
        places[node] = len(records)
        records.append([*head, [places[used] for used in uses]])
    head, uses = writer.output(program)
    # Nodes that compute the same have one digest, but not the same memory: which of them a result is a view of decides
    # which results share memory. Elsewhere the digests tell it, and the record has no owners.
    owners = [memory_owner(node) for node in uses]
    if owners != uses and len(set(owners)) > len({digests[one] for one in owners}):
        head.append([owners.index(one) for one in owners])
    records.append([*head, [places.get(used, -1) for used in uses]])
    effects = [digests[node] for node in program.order if not node.users]
    ranges = program.symbols.ranges(program.constraints)  # also of sizes that only operators make
    header = _frame(_canonical_json([head, [list(bounds) for bounds in ranges], len(effects)]))
    content = b"".join([header, *effects, *(digests[used] for used in uses)])
    return records, Digest(hash_bytes(content).hex(), len(content))


def graph_document(program: LoweredProgram, records: list[Json]) -> dict[str, Json]:
    """Return the graph as stored in an artifact: its records, and names for printing them.

    ``operators`` has the argument names of each operator, ``sizes`` the ``[min, max]`` of each symbolic size.
    """
    targets = {node.target for node in program.order if isinstance(node.target, torch._ops.OpOverload)}
    operators: dict[str, Json] = {_operator_id(one): list(parameter_places(one)) for one in targets}
    sizes: list[Json] = [list(bounds) for bounds in program.symbols.ranges(program.constraints)]
    return {"format": 1, "operators": operators, "sizes": sizes, "nodes": records}


def _operator_id(target: object) -> str:
    """Return an operator's name in records; a custom operator's is its whole schema."""
    if isinstance(target, torch._ops.OpOverload) and target.namespace not in TORCHS_OWN:
        return str(target._schema)
    return operator_name(target)


def _frame(text: str) -> bytes:
    return f"{len(text)}:{text}".encode()  # JSON escapes what is not ASCII: as many bytes as characters


class _Writer:
    """Write nodes as JSON relative to their operands."""

    def __init__(self, symbols: Symbols, declared: Collection[str]) -> None:
        self._symbols = symbols
        self._declared = frozenset(declared)
        self._uses: dict[fx.Node, int] = {}
        self._names: dict[object, str] = {}
        self._values: dict[object, tuple[Json, str]] = {}

    def record(self, node: fx.Node, arguments: list[Any]) -> tuple[list[Json], str, list[fx.Node]]:
        """Return a node's record, its canonical JSON, and the node's operands."""
        if node.op != "call_function":
            head = self._leaf(node)
            return head, _canonical_json(head), []
        self._uses = {}
        # Most names and values repeat: their JSON is cached and joined.
        name = self._names.get(node.target)
        if name is None:
            self._check(node)
            name = self._names[node.target] = _operator_id(node.target)
        if "torch_executed" in node.meta:
            name += " in torch"
        described_arguments: list[Json] = [self._argument(one, node) for one in arguments]
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            sizes = tuple([size if type(size) is int else expression(size) for size in value.shape])
            kind = (value.dtype, sizes, value.device.type)
            cached = self._values.get(kind)
            if cached is None:
                result = self._describe_value(value)
                cached = self._values[kind] = result, _canonical_json(result)
            result, text = cached
        else:
            result = self._describe_value(value)
            text = _canonical_json(result)
        return (
            [name, described_arguments, result],
            f"[{_canonical_json(name)},{_canonical_json(described_arguments)},{text}]",
            list(self._uses),
        )

    def _leaf(self, node: fx.Node) -> list[Json]:
        meta = node.meta
        if "input" in meta:
            value, strides = meta["val"], None
            described = self._describe_value(value)
            if isinstance(value, torch.Tensor):
                strides = [self._symbols.write(step) for step in value.stride()]
            return ["input", [meta["input"]], described, strides]
        if "engine_weight" in meta:
            weight = meta["engine_weight"]
            return ["weight", [recipes.document(weight.recipe)], weight.document()]
        if "constant" in meta:
            return ["constant", [meta["constant"][1]], self._describe_value(meta["val"])]
        self._check(node)
        return [operator_name(node.target), [], self._describe_value(meta.get("val"))]

    def output(self, program: LoweredProgram) -> tuple[list[Json], list[fx.Node]]:
        self._uses = {}
        node = program.graph_module.graph.output_node()
        slots = {name: slot.index for slot in program.interface.slots for name in slot.names}
        results: list[Json] = []
        numbers = iter([one.value for one in program.interface.results if one.kind == "size"])
        for role, value in zip(node.meta["roles"], node.args[0], strict=True):  # type: ignore[arg-type]
            if role.kind == "size":
                results.append([role.kind, None, {"$number": next(numbers)}])
                continue
            target = slots[role.target] if role.kind == "weight" else role.target
            results.append([role.kind, target, self._argument(value, node)])
        return ["output", results], list(self._uses)

    def _check(self, node: fx.Node) -> None:
        if isinstance(node.target, torch._ops.OpOverload):
            if why := why_unknown(node.target, self._declared):
                raise CanonicalizationError(f"graph node {node.name}", why)
            return
        if node.op != "call_function" or not is_arithmetic(node.target):
            raise CanonicalizationError(
                f"graph node {node.name}",
                f"{operator_name(node.target)} is neither an ATen operator nor arithmetic on sizes: it has no digest",
            )

    def _argument(self, argument: Any, node: fx.Node) -> Json:  # noqa: C901  # one case for each type
        if argument is None or type(argument) in _PLAIN:
            return argument  # type: ignore[no-any-return]  # one of the JSON types above
        match argument:
            case fx.Node():
                return {"$use": self._uses.setdefault(argument, len(self._uses))}
            case float() if is_negative_nan(argument):
                why = f"an engine does not keep the sign of the NaN in {node.name}: use float('nan')"
                raise ExportError("the program", why)
            case float():
                return {"$float": argument.hex()}
            case list() | tuple():
                return [self._argument(one, node) for one in argument]
            case dict():
                return {str(name): self._argument(one, node) for name, one in argument.items()}
            case torch.dtype() | torch.layout() | torch.memory_format():
                return {"$torch": str(argument)}
            case torch.device():
                return {"$device": argument.type}
            case complex():
                return {"$complex": [argument.real.hex(), argument.imag.hex()]}
            case slice():
                parts = (argument.start, argument.stop, argument.step)
                return {"$slice": [self._argument(one, node) for one in parts]}
            case torch.SymInt():
                return {"$size": self._symbols.write(argument)}
        raise CanonicalizationError(f"graph node {node.name}", f"argument {argument!r} has no stable description")

    def _describe_value(self, value: Any) -> Json:
        if isinstance(value, torch.Tensor):
            return [
                str(value.dtype),
                [size if type(size) is int else self._symbols.write(size) for size in value.shape],
                value.device.type,
            ]
        if isinstance(value, (list, tuple)):
            return [self._describe_value(one) for one in value]
        if isinstance(value, torch.SymInt):
            return ["size", self._symbols.write(value)]
        return None if value is None else type(value).__name__
