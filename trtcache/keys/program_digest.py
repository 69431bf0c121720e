"""The digest of an exported program: everything that decompositions and lowering read from it.

Two programs of one digest have one key. It is stricter than a key: the order of statements, the names of weights and
their placement in memory count, because the result of lowering depends on them, or because that is cheaper. Values of
weights do not count, since lowering never reads them; values of constants do.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch as functorch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import ConstantArgument, SymBoolArgument, SymFloatArgument, SymIntArgument
from torch.export.graph_signature import TensorArgument as TensorArg

from trtcache.digests import Digest, Json, hash_bytes, is_negative_nan
from trtcache.keys.key import structure
from trtcache.lowering.interface import Content

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram


_json = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
_PLAIN = frozenset({bool, int, float, str, type(None)})
_NAMED = (torch.dtype, torch.layout, torch.memory_format, torch.device)
_SYMBOLIC = (torch.SymInt, torch.SymBool, torch.SymFloat)
_ARGUMENTS = (TensorArg, SymIntArgument, SymFloatArgument, SymBoolArgument)
_MODULES = frozenset({"_operator", "operator", "math", "builtins", "torch"})
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})

_ENVIRONMENT = (
    *("axioms", "backed_var_to_val", "deferred_runtime_asserts", "divisible", "replacements", "settings", "size_like"),
    *("unbacked_inputs", "unbacked_renamings", "var_to_hint_override", "var_to_range"),
)
"""Attributes of ``ShapeEnv`` that decompositions depend on."""


def exported_digest(program: ExportedProgram) -> Digest:
    """Return the digest of an exported program.

    Raises:
        ValueError: something in it has no stable description; the message says what.
    """
    try:
        text = _json(_Writer().document(program))
    except (AttributeError, RuntimeError, TypeError, LookupError, NotImplementedError) as error:
        raise ValueError(f"it has an unknown form: {type(error).__name__}: {error}") from error
    encoded = text.encode()
    return Digest(hash_bytes(encoded).hex(), len(encoded))


class _Writer:
    """Write a program as JSON: nodes by index, other values as objects with one name."""

    def __init__(self) -> None:
        self._targets: dict[object, str] = {}
        self._environments: dict[int, Any] = {}

    def document(self, program: ExportedProgram) -> Json:
        graph_module, call = program.graph_module, program.call_spec
        if program.graph_signature.backward_signature is not None:
            raise ValueError("it has a backward pass")
        places = {node.name: place for place, node in enumerate(graph_module.graph.nodes)}
        signature = program.graph_signature
        written: dict[str, Any] = {
            "dialect": program.dialect,
            "graph": self._graph(graph_module),
            "inputs": [
                [one.kind.name, one.target, one.persistent, self._signature_entry(one.arg, places)]
                for one in signature.input_specs
            ],
            "outputs": [
                [one.kind.name, one.target, self._signature_entry(one.arg, places)] for one in signature.output_specs
            ],
            "weights": _weights(program.state_dict, program.constants),
            "constants": {name: _content(name, tensor) for name, tensor in program.constants.items()},
            "structure": [structure(call.in_spec), structure(call.out_spec)],
            "modules": [one.fqn for one in program.module_call_graph if one.signature is not None],
            "ranges": sorted(f"{symbol}: {bounds}" for symbol, bounds in program.range_constraints.items()),
            "guards": list(map(str, program._guards_code)),
        }
        sizes = [
            {name: _to_json(getattr(environment, name)) for name in _ENVIRONMENT}
            | {"guards": [str(guard.expr) for guard in environment.guards], "frozen": environment.frozen}
            for environment in self._environments.values()
        ]
        return written | {"sizes": sizes}

    def _graph(self, graph_module: fx.GraphModule) -> Json:
        places: dict[fx.Node, int] = {}
        records: list[Json] = []
        for node in graph_module.graph.nodes:
            target: Json = self._targets.get(node.target)
            if target is None and node.op == "call_function":
                target = self._targets[node.target] = _function(node.target)
            elif node.op == "get_attr":
                value = operator.attrgetter(str(node.target))(graph_module)
                is_graph = isinstance(value, torch.fx.GraphModule)
                target = self._graph(value) if is_graph else _content(str(node.target), value)
            elif target is None and node.op not in {"placeholder", "output"}:
                raise ValueError(f"node {node.name} is a {node.op}")
            arguments = [self._argument(one, places) for one in node.args]
            named: Json = [[name, self._argument(one, places)] for name, one in node.kwargs.items()]
            records.append([node.op, target, arguments, named, self._value(node.meta.get("val"))])
            places[node] = len(places)
        return records

    def _argument(self, argument: Any, places: Mapping[fx.Node, int]) -> Json:
        if type(argument) is float and is_negative_nan(argument):
            raise ValueError("an engine does not keep the sign of a NaN: use float('nan')")
        if type(argument) in _PLAIN:
            return argument  # type: ignore[no-any-return]  # one of the JSON types
        if isinstance(argument, torch.fx.Node):
            return {"node": places[argument]}
        if isinstance(argument, (list, tuple)):
            return [self._argument(one, places) for one in argument]
        if isinstance(argument, dict):
            return {"dict": [[str(name), self._argument(one, places)] for name, one in argument.items()]}
        if isinstance(argument, slice):
            return {"slice": [self._argument(one, places) for one in (argument.start, argument.stop, argument.step)]}
        return self._scalar(argument)

    def _scalar(self, value: Any) -> Json:
        if isinstance(value, _NAMED):
            return {"torch": str(value)}
        if isinstance(value, complex):
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if isinstance(value, _SYMBOLIC):
            environment = value.node.shape_env
            self._environments.setdefault(id(environment), environment)
            return {type(value).__name__: [str(value.node._expr), str(value.node.expr)]}
        if isinstance(value, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            return {"function": _function(value)}
        raise ValueError(f"a {type(value).__name__} has no stable description")

    def _value(self, value: Any) -> Json:
        """Write the result of a node."""
        if isinstance(value, FakeTensor):
            if value.layout != torch.strided:
                raise ValueError(f"a tensor of layout {value.layout} has no strides")
            sizes = [size if type(size) is int else self._scalar(size) for size in (*value.shape, *value.stride())]
            offset = value.storage_offset()
            rest = [offset if type(offset) is int else self._scalar(offset), value.requires_grad]
            return [str(value.dtype), str(value.device), sizes, *rest]
        if isinstance(value, torch.Tensor) and functorch.is_batchedtensor(value):  # in ``torch.vmap``
            batch = [functorch.maybe_get_level(value), functorch.maybe_get_bdim(value)]
            return {"batched": [*batch, self._value(functorch.get_unwrapped(value))]}
        if type(value) in _PLAIN:
            return value  # type: ignore[no-any-return]  # one of the JSON types
        if isinstance(value, (list, tuple)):
            return {"values": [self._value(one) for one in value]}
        return self._scalar(value)

    def _signature_entry(self, argument: Any, places: Mapping[str, int]) -> Json:
        """Write the signature's entry for an input or an output."""
        if isinstance(argument, _ARGUMENTS):
            return [type(argument).__name__, places[argument.name]]
        if isinstance(argument, ConstantArgument):
            return ["ConstantArgument", self._argument(argument.value, {})]
        raise ValueError(f"an input or output is a {type(argument).__name__}")


def _function(target: Any) -> str:
    """Return a function's name; an operator's with its whole schema."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target} {target._schema}"
    module = str(getattr(target, "__module__", None))
    if module.partition(".")[0] not in _MODULES:
        raise ValueError(f"function {target} is neither torch's nor Python's")
    is_higher = isinstance(target, torch._ops.HigherOrderOperator)
    return f"{module}.{target._name if is_higher else target.__qualname__}"


def _weights(*groups: Mapping[str, Any]) -> Json:
    """Write weights and constants in order: everything about them except their values."""
    storages: dict[int, int] = {}
    places: dict[int, int] = {}  # two storages of one address count as one weight
    written: list[Json] = []
    for group in groups:
        for name, tensor in group.items():
            if type(tensor) not in _TENSORS or tensor.layout != torch.strided or tensor.device.type == "meta":
                raise ValueError(f"{name} is a {type(tensor).__name__}, or has no values or strides")
            storage = tensor.untyped_storage()
            storage_number = storages.setdefault(storage._cdata, len(storages))
            place = places.setdefault(tensor.data_ptr(), len(places))
            flags = [type(tensor).__name__, tensor.requires_grad, tensor.is_conj(), tensor.is_neg()]
            layout = [storage_number, place, storage.nbytes(), tensor.storage_offset(), *tensor.stride()]
            written.append([name, str(tensor.dtype), str(tensor.device), list(tensor.shape), layout, flags])
        written.append(None)
    return written


def _content(name: str, value: object) -> Json:
    if type(value) not in _TENSORS:
        raise ValueError(f"{name} is a {type(value).__name__}")
    content = Content.of(value)  # type: ignore[arg-type]  # a tensor, as checked above
    return [content.digest, content.dtype, list(content.shape)]


def _to_json(value: Any) -> Json:
    if isinstance(value, dict):
        return [[str(name), _to_json(one)] for name, one in value.items()]
    if isinstance(value, (set, frozenset)):
        written: list[Json] = [*map(str, value)]
        return sorted(written, key=str)
    if isinstance(value, (list, tuple)):
        return list(map(_to_json, value))
    return str(getattr(value, "expr", value))


def devices(program: ExportedProgram) -> set[torch.device]:
    """Return the devices of a program's weights, constants and values, without the CPU."""
    made = [node.meta.get("val") for node in program.graph_module.graph.nodes]
    held: Iterable[Any] = (*program.state_dict.values(), *program.constants.values(), *made)
    return {one.device for one in held if isinstance(one, torch.Tensor)} - {torch.device("cpu")}
