"""Lowered programs rebuilt from the members of an artifact: graph, interface, weight map, constants, key document.

None of them has the values of weights, nor has the rebuilt program. Compare keys to know that it is the same program.
"""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from trtcache.backends.protocol import CONSTANTS, GRAPH, INTERFACE, WEIGHT_MAP
from trtcache.config.frozen import frozen_dataclass
from trtcache.lowering.interface import Content, Result, SmallSizes
from trtcache.lowering.marked_graph import MarkedGraph
from trtcache.lowering.operators import find_overload
from trtcache.lowering.program import LoweredProgram, assemble_program
from trtcache.lowering.rewriting import set_arguments
from trtcache.runtime.executable import read_constants
from trtcache.weights import recipes
from trtcache.weights.recipes import WeightRef, rename

if TYPE_CHECKING:
    from trtcache.digests import Json

_MODULES = {"_operator": operator, "math": math, "torch": torch}
_SIZE_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Pow": operator.pow,
    "Max": lambda *sizes: functools.reduce(torch.sym_max, sizes),
    "Min": lambda *sizes: functools.reduce(torch.sym_min, sizes),
}


@frozen_dataclass
class CallStructure:
    """The structure of a program's arguments and output.

    Attributes:
        in_spec, out_spec: the pytree specs of arguments and output.
        roles: the role of each output of its graph.
        values: leaves of the arguments that are not tensors.
    """

    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    roles: tuple[Result, ...]
    values: Mapping[int, object] = field(default_factory=dict)

    @classmethod
    def of_part(cls, takes: int, gives: int) -> CallStructure:
        """Return the call structure of a partition: a tuple of its inputs, and of its outputs."""
        in_spec = pytree.tree_structure((tuple(range(takes)), {}))
        return cls(in_spec, pytree.tree_structure(tuple(range(gives))), (Result("result"),) * gives)


def rebuild_program(
    members: Mapping[str, bytes],
    *,
    name: str,
    pipeline: Sequence[str],
    hints: Sequence[int | None],
    device: torch.device,
    outside: CallStructure | None = None,
) -> LoweredProgram:
    """Rebuild a lowered program from stored members; its weights are uninitialized.

    Args:
        members: graph, interface, weight map and constants of an artifact.
        name: the program's name.
        pipeline: the specs of the passes that lowered it.
        hints: a likely value of each symbol.
        device: the device that it runs on.
        outside: the program's call structure; by default a partition's, which takes a tuple of inputs.

    Raises:
        ValueError: the members are inconsistent, or name something that this process does not have.
    """
    try:
        interface, weights = json.loads(members[INTERFACE]), json.loads(members[WEIGHT_MAP])
        builder = _GraphBuilder(interface, weights, members[CONSTANTS], device)
        return builder.program(json.loads(members[GRAPH]), name, tuple(pipeline), hints, outside)
    except (LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, AssertionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


class _GraphBuilder:
    """Rebuilds a graph node by node."""

    def __init__(self, interface: Any, weight_map: Any, constants: bytes, device: torch.device) -> None:
        self._interface, self._weight_map, self._device = interface, weight_map, device
        self._constants = read_constants(constants, interface["constants"], device)
        self._contents = {name: Content.of(tensor) for name, tensor in self._constants.items()}
        self._graph_module = fx.GraphModule(torch.nn.Module(), fx.Graph())
        self._graph = self._graph_module.graph
        self._shapes = ShapeEnv()
        self._fakes = FakeTensorMode(shape_env=self._shapes, allow_non_fake_inputs=True)
        self._symbols: list[Any] = []
        self._constraints: dict[Any, Any] = {}
        self._weights = 0

    def program(
        self,
        graph: Any,
        name: str,
        pipeline: tuple[str, ...],
        hints: Sequence[int | None],
        outside: CallStructure | None,
    ) -> LoweredProgram:
        for number, (bounds, hint) in enumerate(zip(graph["sizes"], hints, strict=True)):
            self._add_symbol(number, bounds, hint)
        *records, output = graph["nodes"]
        with torch.no_grad(), self._fakes:
            inputs = {int(one["leaf"]): self._input(place, one) for place, one in enumerate(self._interface["inputs"])}
            nodes: list[fx.Node] = []
            for record in records:
                nodes.append(self._node(record, nodes, inputs))
        used = [nodes[place] for place in output[-1]]
        output_node = self._graph.output(tuple(self._value(argument, used) for *_, argument in output[1]))
        outside = outside or CallStructure.of_part(len(inputs), len(output[1]))
        output_node.meta["roles"] = outside.roles
        slots = self._interface["slots"]
        state = {f"s{index}": self._empty(one) for index, one in enumerate(slots)}
        program = assemble_program(
            MarkedGraph(self._graph_module, state, dict(outside.values), {}),
            name=name,
            in_spec=outside.in_spec,
            out_spec=outside.out_spec,
            constraints=self._constraints,
            state_dict_names={f"s{index}" for index, one in enumerate(slots) if not one["transient"]},
            pipeline=pipeline,
        )
        interface = replace(
            program.interface,
            guards=tuple(self._interface.get("guards", ())),
            small_sizes=SmallSizes.read(self._interface.get("small_sizes")),
        )
        known = {number: hint for number, hint in enumerate(hints) if hint is not None}
        return replace(program, interface=interface, example_sizes=known)

    def _add_symbol(self, number: int, range_: Sequence[int | None], hint: int | None) -> None:
        least, most = range_
        chosen = hint if hint is not None else max(least or 2, 2)
        symbol = self._shapes.create_symbol(
            chosen, source=ConstantSource(f"size{number}"), dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
        )
        bounds = ValueRanges(-int_oo if least is None else least, int_oo if most is None else most)
        self._shapes.var_to_range[symbol] = self._constraints[symbol] = bounds
        self._symbols.append(self._shapes.create_symintnode(symbol, hint=chosen))

    def _device_of(self, kind: str) -> torch.device:
        return self._device if kind == self._device.type else torch.device(kind)

    def _empty(self, spec: Any) -> torch.Tensor:
        shape, stride = tuple(map(self._size, spec["shape"])), tuple(map(self._size, spec["stride"]))
        dtype = getattr(torch, spec["dtype"])
        return torch.empty_strided(shape, stride, dtype=dtype, device=self._device_of(spec["device"]))

    def _size(self, written: Json) -> Any:
        if isinstance(written, int):
            return written
        if isinstance(written, dict):
            return self._symbols[int(str(written["sym"]))]
        assert isinstance(written, list)  # noqa: S101  # ``Symbols.write`` returns nothing else
        head, *rest = written
        values = list(map(self._size, rest))
        if head in {"Add", "Mul"}:
            total = values[0]
            for value in values[1:]:
                total = total + value if head == "Add" else total * value
            return total
        return _SIZE_FUNCTIONS[str(head)](*values)

    def _input(self, place: int, spec: Any) -> fx.Node:
        node: fx.Node = self._graph.placeholder(f"in{place}")
        node.meta |= {"input": spec["leaf"], "number": spec.get("number", False), "val": self._empty(spec)}
        return node

    def _node(self, record: list[Any], nodes: list[fx.Node], inputs: Mapping[int, fx.Node]) -> fx.Node:
        kind, arguments = record[0], record[1]
        if kind == "input":
            return inputs[int(arguments[0])]
        if kind == "weight":
            return self._weight()
        if kind == "constant":
            return self._constant(arguments[0], record[2])
        used = [nodes[place] for place in record[-1]]
        target = _target(kind)
        node: fx.Node = self._graph.call_function(target, ())
        values = [self._value(one, used) for one in arguments]
        if isinstance(node.target, torch._ops.OpOverload):
            set_arguments(node, values)
        else:
            node.args = tuple(values)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda used: used.meta["val"])
        node.meta["val"] = target(*args, **kwargs)
        return node

    def _weight(self) -> fx.Node:
        index = self._weights
        self._weights += 1
        recipe = rename(recipes.parse(self._weight_map[f"w{index}"]), lambda slot: f"s{slot}")
        node = self._graph.placeholder(f"w{index}")
        node.meta["val"] = self._empty(self._interface["weights"][index])
        if isinstance(recipe, WeightRef):
            node.meta["weight"] = str(recipe.weight)
        else:
            node.meta["recipe"] = recipe
        return node

    def _constant(self, digest: str, made: Sequence[Any]) -> fx.Node:
        found = [
            (name, tensor)
            for name, tensor in self._constants.items()  # constants with equal bytes may differ in shape
            if self._interface["constants"][name][0] == digest
            and [str(tensor.dtype), list(tensor.shape), tensor.device.type] == made
        ]
        name, tensor = found[0]
        if not hasattr(self._graph_module, name):
            self._graph_module.register_buffer(name, tensor, persistent=False)
        node: fx.Node = self._graph.create_node("get_attr", name)
        node.meta |= {"val": self._fakes.from_tensor(tensor, static_shapes=True), "content": self._contents[name]}
        return node

    def _value(self, written: Any, used: list[fx.Node]) -> Any:  # noqa: C901  # one case a kind
        if isinstance(written, list):
            return [self._value(one, used) for one in written]
        if not isinstance(written, dict):
            return written
        ((kind, value),) = written.items()
        match kind:
            case "$use":
                return used[value]
            case "$float":
                return float.fromhex(value)
            case "$torch":
                return getattr(torch, value.removeprefix("torch."))
            case "$device":
                return self._device_of(value)
            case "$complex":
                return complex(*map(float.fromhex, value))
            case "$slice":
                return slice(*(self._value(one, used) for one in value))
            case "$size":
                return self._size(value)
            case "$number":  # a result that engines do not compute
                return None
        raise ValueError(f"an argument of the kind {kind}")


def _target(name: str) -> Any:
    """Return the function or the operator of a call."""
    if "::" in name:  # a custom operator is recorded with its whole schema
        schema = torch._C.parse_schema(name)
        found = find_overload(f"{schema.name}.{schema.overload_name}")
        if found is None or str(found._schema) != name:
            raise ValueError(f"{schema.name} is not registered, or its schema has changed")
        return found
    module, _, rest = name.partition(".")
    if name == "builtins.round":
        return round
    if module in _MODULES:
        return getattr(_MODULES[module], rest)
    packet, _, overload = rest.rpartition(".")
    return getattr(getattr(getattr(torch.ops, module), packet), overload)
