"""Extraction of partitions: an engine's as a lowered program of its own, torch's as an ``fx.GraphModule``.

An engine partition does not show which program it came from, so that equal partitions of two programs share one key
and one entry.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from trtcache.errors import ExportError
from trtcache.lowering.interface import Result, SmallSizes, evaluate, symbols_in
from trtcache.lowering.marked_graph import MarkedGraph
from trtcache.lowering.operators import TORCHS_OWN, is_arithmetic, operator_name, why_unknown
from trtcache.lowering.program import LoweredProgram, assemble_program
from trtcache.lowering.rewriting import (
    canonical_order,
    contiguous_arguments,
    draws_random_numbers,
    expression,
    is_check,
    is_contiguous,
    is_ordered,
    is_static,
    is_view,
    reads_strides,
    tensor_of,
)
from trtcache.lowering.symbols import Symbols
from trtcache.partition.division import LeftInTorch
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
from trtcache.weights.slots import layout

ON_VALUES = "a size depends on values, which is known only when the program runs"
CHECK = "it checks sizes"
RANDOM = "it draws random numbers, and an engine would draw others than torch"


def describe_torch_node(node: fx.Node, why: str) -> LeftInTorch:
    """Describe a node that stays in torch."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    return LeftInTorch(node.name, operator_name(node.target), paths[-1] if paths else "", why)


def find_unsupported(
    order: Iterable[fx.Node], declared: Collection[str], why_not: Callable[[fx.Node], str | None]
) -> dict[fx.Node, str]:
    """Return the nodes that an engine does not support or must not contain, with the reason.

    ``declared`` are custom operators and namespaces whose version is known; ``why_not`` is the backend's reason.
    """
    reasons = {}
    for node in order:
        if node.op != "call_function":
            continue
        target, why = node.target, None
        if marked := node.meta.get("torch_executed"):
            why = str(marked)
        elif draws_random_numbers(node):
            why = RANDOM
        elif isinstance(target, torch._ops.OpOverload):
            why = why_unknown(target, declared)
        elif not is_number(node) and not is_arithmetic(target):
            why = f"{operator_name(target)} is not an operator of a known version"
        if why := why or why_not(node):
            reasons[node] = why
    return reasons


def find_dependents(order: Iterable[fx.Node], unsupported: Collection[fx.Node]) -> dict[fx.Node, str]:
    """Return the nodes that stay in torch because ``unsupported`` nodes do.

    Data-dependent numbers cannot be engine inputs, ``getitem`` stays with its operator, and a size check is not worth
    an engine.
    """
    reasons: dict[fx.Node, str] = {}
    for node in order:
        if node in unsupported or not is_step(node):
            continue
        if depends_on_values(node):
            reasons[node] = ON_VALUES
        elif is_check(node):
            reasons[node] = CHECK
        elif node.target is operator.getitem and (node.args[0] in unsupported or node.args[0] in reasons):
            reasons[node] = ""
    return reasons


_NUMBERS = (torch.SymInt, torch.SymBool, torch.SymFloat)


def is_number(node: fx.Node) -> bool:
    """Return whether a node computes a size or another number instead of a tensor."""
    return isinstance(node.meta.get("val"), _NUMBERS)


def depends_on_values(node: fx.Node) -> bool:
    """Return whether a node computes or takes a data-dependent number (an unbacked symbol)."""
    return any(_has_unbacked_symbols(one.meta.get("val")) for one in (node, *node.all_input_nodes))


def _has_unbacked_symbols(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_unbacked_symbols, value))
    if isinstance(value, torch.Tensor):
        symbolic = any(type(size) is not int for size in value.shape)
        return symbolic and bool(free_unbacked_symbols(value))
    return isinstance(value, _NUMBERS) and bool(free_unbacked_symbols(value))


def is_size(node: fx.Node) -> bool:
    """Return whether a node computes a number from input sizes alone; such nodes are recomputed where they are used."""
    return node.op == "call_function" and is_number(node) and not depends_on_values(node)


def is_step(node: fx.Node) -> bool:
    """Return whether a node belongs to exactly one partition: it computes something other than a size."""
    return node.op == "call_function" and not is_size(node)


def is_work(node: fx.Node) -> bool:
    """Return whether a node counts as an operator of an engine; views and ``getitem`` do not."""
    return is_step(node) and not is_view(node) and node.target is not operator.getitem


def is_sequential(node: fx.Node) -> bool:
    """Return whether a node keeps its order among such nodes even when partitions run in parallel.

    Custom operators do: one may have an effect, or draw random numbers, without declaring it.
    """
    if node.op != "call_function":
        return False
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace not in TORCHS_OWN or is_ordered(node)
    return not is_arithmetic(target)


aten = torch.ops.aten


def extract_engine_partition(
    whole: LoweredProgram, cluster: Cluster, outputs: Sequence[fx.Node], sources: WireTable, *, name: str
) -> EnginePartition:
    """Extract an engine partition from a program."""
    cut = _Extraction(whole, cluster, sources)
    graph_module = cut.copy_nodes(outputs)
    takes = cut.inputs_in_order(graph_module)
    graph_module.graph.output_node().meta["roles"] = (Result("result"),) * len(outputs)
    saved = {name for slot in whole.interface.slots if not slot.transient for name in slot.names}
    program = assemble_program(
        MarkedGraph(graph_module, dict(whole.state), {}, {}),
        name=name,
        in_spec=pytree.tree_structure((tuple(range(len(takes))), {})),
        out_spec=pytree.tree_structure(tuple(range(len(outputs)))),
        constraints=whole.constraints,
        state_dict_names=saved,
        pipeline=whole.pipeline,
    )
    if whole.interface.small_sizes is not None:
        # Accept the sizes of 0 and 1 that the whole program accepts; it checks them on each call.
        known = dict(zip(whole.symbols.order, whole.interface.checked_ranges, strict=False))
        ranges = zip(program.symbols.order, program.interface.ranges, strict=False)
        least = tuple(known.get(symbol, own)[0] for symbol, own in ranges)
        program = replace(program, interface=replace(program.interface, small_sizes=SmallSizes(least, ())))
    return EnginePartition(program, takes, len(outputs), cut.weights(), cluster)


class _Extraction:
    """Copy the nodes of a cluster, and what they need from outside, into a new graph."""

    def __init__(self, whole: LoweredProgram, cluster: Cluster, sources: WireTable) -> None:
        self._cluster, self._sources = cluster, sources
        self._graph_module = fx.GraphModule(torch.nn.Module(), fx.Graph())
        self._graph = self._graph_module.graph
        self._whole = whole
        self._copies: dict[fx.Node, fx.Node] = {}
        self._wires: dict[fx.Node, Wire] = {}
        self._sizes: dict[Any, tuple[fx.Node, int]] = {}
        self._fake: torch.Tensor | None = next(
            (one for node in cluster.nodes if (one := tensor_of(node)) is not None), None
        )

    def copy_nodes(self, outputs: Sequence[fx.Node]) -> fx.GraphModule:
        inside = set(self._cluster.nodes)
        used = (one for node in self._cluster.nodes for one in node.all_input_nodes)
        for node in dict.fromkeys(one for one in used if one not in inside):
            if node.op == "get_attr":
                name = f"constant_{len(self._graph_module._buffers)}"
                value = getattr(self._whole.graph_module, str(node.target))
                self._graph_module.register_buffer(name, value, persistent=False)
                copy = self._graph.create_node("get_attr", name)
                self._copies[node] = self._copy_with_meta(copy, node, "constant")
            elif not is_size(node):
                self._copies[node] = self._placeholder(node)
        # Each symbol that no input's size determines gets a tensor input.
        nodes = (*self._wires, *self._cluster.nodes)
        sizes = [size for node in nodes for size in _all_sizes(node.meta.get("val"))]
        symbols, bound = Symbols(), set[Any]()
        for size in sizes:
            symbols.write(size)
        for size in self._sizes:
            if len(size.free_symbols) == 1:
                (symbol,) = size.free_symbols
                slope = size.diff(symbol)
                bound |= {symbol} if slope.is_Integer and slope != 0 else set()
        for symbol in symbols.order:
            if symbol not in bound:
                self._carry(sizes[0].node.shape_env.create_symintnode(symbol, hint=None))  # the hint is looked up there
        for node in self._cluster.nodes:
            self._copies[node] = self._copy_with_meta(self._graph.node_copy(node, self._map_node), node)
        made = self._graph.output(tuple(self._copies[node] for node in outputs))
        made.meta["val"] = tuple(node.meta["val"] for node in outputs)
        return self._graph_module

    def inputs_in_order(self, graph_module: fx.GraphModule) -> tuple[Wire, ...]:
        """Number the inputs by first use, reorder their placeholders, and return their sources."""
        order, _ = canonical_order(graph_module.graph)
        used = [node for node in order if node in self._wires]
        ranked = [*used, *(node for node in self._wires if node not in set(used))]
        for place, node in enumerate(ranked):
            node.meta["input"] = place
        for node in reversed(ranked):
            next(iter(graph_module.graph.nodes)).prepend(node)
        return tuple(self._wires[node] for node in ranked)

    def weights(self) -> dict[str, str]:
        return {
            copy.meta["engine_weight"].name: node.meta["engine_weight"].name
            for node, copy in self._copies.items()
            if "engine_weight" in copy.meta and copy not in self._wires
        }

    def _placeholder(self, node: fx.Node) -> fx.Node:
        made = self._copy_with_meta(self._graph.placeholder(node.name), node, "engine_weight", "input")
        weight = node.meta.get("engine_weight")
        if weight is not None and not weight.is_mutated:
            return made
        made.meta = {"val": self._input_layout(node)}
        self._wires[made] = self._sources.wire(node)
        for dim, size in enumerate(made.meta["val"].shape):
            if type(size) is not int:
                self._sizes.setdefault(expression(size), (made, dim))
        return made

    def _copy_with_meta(self, copy: fx.Node, node: fx.Node, *left_out: str) -> fx.Node:
        copy.meta = {name: value for name, value in node.meta.items() if name not in left_out}
        return copy

    def _input_layout(self, node: fx.Node) -> torch.Tensor:
        """Return an input with the program's own layout, or contiguous where that has gaps."""
        value: torch.Tensor = node.meta["val"]
        if is_contiguous(value):
            return value
        if is_static((*value.shape, *value.stride())) and layout(tuple(value.shape), value.stride()) == value.stride():
            return value
        if any(reads_strides(user) for user in node.users if user in self._cluster.nodes):
            why = f"{node.name} has a layout with gaps, and an operator of the engine that uses it reads strides"
            raise ExportError(self._whole.name, f"{why}; leave that operator in torch: torch_executed_ops")
        return value.contiguous()

    def _carry(self, size: Any) -> None:
        """Add a tensor input for a size that no other input has."""
        assert self._fake is not None  # noqa: S101  # a cluster with sizes has tensors
        made = self._graph.placeholder(f"size_{len(self._sizes)}")
        made.meta["val"] = self._fake.new_empty((size, 0), dtype=torch.float32)
        self._wires[made] = SizeTensor(self._sources.size(size))
        self._sizes[expression(size)] = (made, 0)

    def _map_node(self, node: fx.Node) -> fx.Node:
        """Return the copy of a node; sizes are computed again from the sizes of the new graph's inputs."""
        if node in self._copies:
            return self._copies[node]
        size = node.meta["val"]
        if expression(size) not in self._sizes and node.target is not aten.sym_size.int:
            made = self._graph.node_copy(node, self._map_node)
        else:
            if expression(size) not in self._sizes:
                self._carry(size)
            made = self._graph.call_function(aten.sym_size.int, self._sizes[expression(size)])
        made.meta["val"] = size
        self._copies[node] = made
        return made


def _all_sizes(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from _all_sizes(element)
    elif isinstance(value, torch.Tensor):
        yield from (size for size in value.shape if type(size) is not int)


def extract_torch_partition(cluster: Cluster, outputs: Sequence[fx.Node], sources: WireTable) -> TorchPartition:
    """Extract a torch partition from a program."""
    graph = fx.Graph()
    arguments: dict[Wire, fx.Node] = {}
    copies: dict[fx.Node, fx.Node] = {}

    def argument(wire: Wire) -> fx.Node:
        if wire not in arguments:
            arguments[wire] = graph.placeholder(f"a{len(arguments)}")
        return arguments[wire]

    inside = set(cluster.nodes)

    def add_placeholders(value: Any) -> None:
        if isinstance(value, fx.Node) and value not in inside:
            copies[value] = argument(sources.wire(value))
        elif isinstance(value, torch.SymInt):
            argument(sources.size(value))

    def number(value: Any) -> Any:
        return arguments[sources.size(value)] if isinstance(value, torch.SymInt) else value

    for node in cluster.nodes:  # placeholders come first in a graph
        fx.node.map_aggregate((node.args, node.kwargs), add_placeholders)
    for node in cluster.nodes:
        copy = graph.node_copy(node, copies.__getitem__)
        copy.args, copy.kwargs = fx.node.map_aggregate((copy.args, copy.kwargs), number)
        with graph.inserting_before(copy):
            for place in contiguous_arguments(node):
                copy.update_arg(place, graph.call_function(aten.contiguous.default, (copy.args[place],)))
        copies[node] = copy
    graph.output(tuple(copies[node] for node in outputs))
    return TorchPartition(fx.GraphModule(torch.nn.Module(), graph), tuple(arguments), len(outputs), cluster)


class WireTable:
    """The wires of a program's nodes; a partition's results are added once it is extracted."""

    def __init__(self, program: LoweredProgram) -> None:
        """Register the program's inputs."""
        self._program = program
        self._outputs: dict[fx.Node, PartitionOutput] = {}
        inputs = [one for one in program.graph_module.graph.find_nodes(op="placeholder") if "input" in one.meta]
        self._inputs = {node: InputWire(place) for place, node in enumerate(inputs)}

    def add(self, part: int, outputs: list[fx.Node]) -> None:
        """Register the results of a partition."""
        self._outputs |= {node: PartitionOutput(part, place) for place, node in enumerate(outputs)}

    def wire(self, node: fx.Node) -> Wire:
        """Return the wire of a node outside of the partition that uses it."""
        if node in self._outputs:
            return self._outputs[node]
        if node in self._inputs:
            return self._inputs[node]
        if "engine_weight" in node.meta:
            return WeightWire(node.meta["engine_weight"].name)
        if "constant" in node.meta:
            return ConstantWire(node.meta["constant"][0])
        assert is_size(node), node  # noqa: S101  # nothing else is outside of a partition
        return self.size(node.meta["val"])

    def size(self, size: Any) -> SizeWire:
        """Return the wire of a size.

        Raises:
            ExportError: it cannot be computed from the inputs' sizes.
        """
        written = self._program.symbols.copy().write(size)
        numbers = set(symbols_in(written))
        shapes = (spec.shape for spec in self._program.interface.inputs)
        known = {number for shape in shapes for one in shape for number in symbols_in(one)}
        if type(evaluate(written, dict.fromkeys(numbers, 2))) is not int or not numbers <= known:
            why = f"size {size} crosses a partition boundary, and cannot be computed from the inputs' sizes"
            advice = "compute with whole numbers of sizes (//), or leave that dimension out of dynamic_shapes"
            raise ExportError(self._program.name, f"{why}; {advice}")
        return SizeWire.of(written)
