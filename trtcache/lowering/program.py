"""The lowered program: a graph in canonical order with numbered slots, and the model's own tensors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.errors import ExportError
from trtcache.lowering.interface import (
    NOT_COMPUTED,
    Content,
    Interface,
    Result,
    TensorInput,
    TensorOutput,
    ValueInput,
    describe,
)
from trtcache.lowering.operators import NodeNames, operator_name
from trtcache.lowering.rewrites.sizes import PROVEN
from trtcache.lowering.rewriting import canonical_order, group_tied, recipe_of
from trtcache.lowering.symbols import Symbols, write_number
from trtcache.weights import recipes
from trtcache.weights.recipes import WeightRef, rename, sources
from trtcache.weights.slots import EngineWeight, Slot, contiguous, dtype_name, layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from torch.export import ExportedProgram
    from torch.utils._pytree import TreeSpec

    from trtcache.lowering.capture import MarkedGraph, Role
    from trtcache.lowering.guards import ExportGuards
    from trtcache.lowering.pipeline import PassRun
    from trtcache.weights.recipes import Recipe


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """A program after lowering.

    Attributes:
        name: the program's name; not part of the key.
        device: its device: the only CUDA device of its tensors, or the CPU.
        graph_module: the graph, in the form described in ``passes.py``.
        order: the nodes that results depend on, in canonical order.
        arguments: the arguments of each node of ``order``, defaults filled in.
        interface: inputs, results, slots and constants.
        constants: the constants' tensors by the engine's names.
        state: every weight of the model by name; an engine shares their memory.
        sources: contents of the model's own constants (non-persistent buffers, tensors that are plain attributes).
        in_spec, out_spec: how torch flattens the call's arguments and the model's output.
        symbols: the symbolic sizes, numbered.
        constraints: their ranges, by torch's names.
        pipeline: the spec strings of its passes, as in the key.
        runs: the runs of the passes.
    """

    name: str
    device: torch.device
    graph_module: fx.GraphModule
    order: tuple[fx.Node, ...]
    arguments: Mapping[fx.Node, list[Any]]
    interface: Interface
    constants: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor]
    sources: Mapping[str, Content]
    in_spec: TreeSpec
    out_spec: TreeSpec
    symbols: Symbols
    constraints: Mapping[Any, Any]
    pipeline: tuple[str, ...]
    runs: tuple[PassRun, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The lowered program as text: a line for each node, in canonical order, with canonical names."""
        return render(self)


def _device(name: str, nodes: Iterable[fx.Node]) -> torch.device:
    devices = {value.device for node in nodes for value in _tensors(node.meta.get("val"))}
    accelerators = {device for device in devices if device.type != "cpu"}
    if len(accelerators) > 1 or any(device.type != "cuda" for device in accelerators):
        names = ", ".join(sorted(map(str, devices)))
        raise ExportError(name, f"its tensors are on {names}; an engine runs on the CPU or on one CUDA device")
    return next(iter(accelerators), torch.device("cpu"))


def _tensors(value: object) -> list[torch.Tensor]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [one for one in values if isinstance(one, torch.Tensor)]


@dataclass(frozen=True, slots=True)
class Frame:
    """The data of a program besides its graph.

    Attributes:
        name, in_spec, out_spec, constraints, pipeline, runs: see ``LoweredProgram``.
        saved: names of weights in the model's state_dict.
    """

    name: str
    in_spec: TreeSpec
    out_spec: TreeSpec
    constraints: Mapping[Any, Any]
    saved: Collection[str]
    pipeline: tuple[str, ...]
    runs: tuple[PassRun, ...] = ()


def finish(
    exported: ExportedProgram,
    marked: MarkedGraph,
    *,
    name: str,
    pipeline: tuple[str, ...],
    runs: tuple[PassRun, ...],
    guards: ExportGuards | None = None,
) -> LoweredProgram:
    """Number the slots and constants of a lowered graph, and collect the program's interface.

    Args:
        exported: the decomposed program of the graph.
        marked: its graph, marked and lowered.
        name: the program's name.
        pipeline: the passes' specs.
        runs: the runs of the passes.
        guards: the guards of export; None if there is nothing to check.

    Raises:
        ExportError: an output is neither a tensor nor a constant, the tensors are on several CUDA devices, or a guard
            cannot be checked at a call.
    """
    call, saved = exported.call_spec, exported.state_dict
    frame = Frame(name, call.in_spec, call.out_spec, exported.range_constraints, saved, pipeline, runs)
    program = assemble_program(marked, frame)
    if guards is None:
        return program
    proven = marked.graph_module.meta.get(PROVEN, ())
    found, small_sizes = guards.finalize(proven, program.symbols, program.interface.ranges)
    return replace(program, interface=replace(program.interface, guards=found, small_sizes=small_sizes))


def without_small_sizes(program: LoweredProgram) -> LoweredProgram:
    """Return a program that rejects sizes of 0 and 1 where torch's range starts at 2, as a profile does."""
    interface = program.interface
    if interface.small_sizes is None:
        return program
    small_sizes = replace(interface.small_sizes, least=tuple(least for least, _ in interface.ranges))
    return replace(program, interface=replace(interface, small_sizes=small_sizes))


def assemble_program(marked: MarkedGraph, frame: Frame) -> LoweredProgram:
    """Return the program of a lowered graph.

    Raises:
        ExportError: see ``finish``.
    """
    graph_module, state = marked.graph_module, marked.state
    order, arguments = canonical_order(graph_module.graph)
    output = graph_module.graph.output_node()
    roles: tuple[Role, ...] = output.meta["roles"]
    symbols = Symbols()
    inputs = _inputs(graph_module, symbols)
    mutated = {str(role.target) for role in roles if role.kind == "weight"}
    slots, weights = number_weights(order, state, mutated=mutated, saved=frame.saved)
    constants, digests = _constants(graph_module, order)
    numbered = symbols.copy()
    return LoweredProgram(
        name=frame.name,
        device=_device(frame.name, graph_module.graph.nodes),
        graph_module=graph_module,
        order=tuple(order),
        arguments=arguments,
        interface=Interface(
            inputs=inputs,
            values=tuple(ValueInput(leaf, value) for leaf, value in sorted(marked.values.items())),
            results=tuple(_result(role, numbered) for role in roles if role.kind != "weight"),
            slots=slots,
            weights=weights,
            constants=digests,
            ranges=symbols.ranges(frame.constraints),
            outputs=_outputs(output, roles, symbols.copy()),
        ),
        constants=constants,
        state=state,
        sources=marked.constants,
        in_spec=frame.in_spec,
        out_spec=frame.out_spec,
        symbols=symbols,
        constraints=frame.constraints,
        pipeline=frame.pipeline,
        runs=frame.runs,
    )


def _inputs(graph_module: fx.GraphModule, symbols: Symbols) -> tuple[TensorInput, ...]:
    inputs = []
    for node in graph_module.graph.find_nodes(op="placeholder"):
        if "input" in node.meta:
            value = node.meta["val"]
            shape = tuple(map(symbols.write, value.shape))
            stride = tuple(map(symbols.write, value.stride()))
            dtype, device = dtype_name(value.dtype), value.device.type
            number = node.meta.get("number", False)
            inputs.append(TensorInput(node.meta["input"], dtype, shape, stride, device, number))
    return tuple(inputs)


def _result(role: Role, symbols: Symbols) -> Result:
    target = role.target if isinstance(role.target, int) else None
    value = write_number(role.value, symbols) if role.kind == "size" else role.value
    return Result(role.kind, target, value, role.layout)


def _outputs(output: fx.Node, roles: Iterable[Role], symbols: Symbols) -> tuple[TensorOutput, ...]:
    """Return the engine's outputs; symbols that only occur here get their own numbers."""
    nodes: Any = output.args[0]
    values = [
        node.meta["val"] for role, node in zip(roles, nodes, strict=True) if role.kind not in {*NOT_COMPUTED, "weight"}
    ]
    return tuple(
        TensorOutput(dtype_name(value.dtype), tuple(map(symbols.write, value.shape)), value.device.type)
        for value in values
    )


def _constants(graph_module: fx.GraphModule, order: list[fx.Node]) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    tensors: dict[str, torch.Tensor] = {}
    names: dict[tuple[Content, str], str] = {}
    for node in order:
        if node.op != "get_attr":
            continue
        tensor = getattr(graph_module, str(node.target))
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(
                "the program", f"it has control flow with a body ({node.target}), which is not cached yet"
            )
        content = node.meta.get("content") or Content.of(tensor)
        name = names.setdefault((content, tensor.device.type), f"c{len(names)}")
        tensors.setdefault(name, tensor)
        node.meta["constant"] = (name, content.digest)
    return tensors, tuple(content.digest for content, _ in names)


def number_weights(
    order: Iterable[fx.Node],
    state: Mapping[str, torch.Tensor],
    *,
    mutated: Collection[str],
    saved: Collection[str],
) -> tuple[tuple[Slot, ...], tuple[EngineWeight, ...]]:
    """Return a program's slots and engine weights; set each weight node's ``meta["engine_weight"]``.

    Args:
        order: the program's nodes in canonical order.
        state: every weight of the model by name.
        mutated: names of weights that a call modifies.
        saved: names in the model's state_dict.
    """
    found = [(node, recipe) for node in order if (recipe := recipe_of(node))]
    groups = group_tied(state)
    whole = {groups[str(recipe.weight)] for _, recipe in found if isinstance(recipe, WeightRef)}
    used = dict.fromkeys(groups[str(name)] for _, recipe in found for name in sources(recipe))
    slots: dict[str | int, Slot] = {}
    for index, names in enumerate(used):
        slot = _slot(index, names, state[names[0]], is_whole=names in whole, mutated=mutated, saved=saved)
        slots |= dict.fromkeys(names, slot)
    weights = tuple(_engine_weight(index, *one, slots) for index, one in enumerate(found))
    return tuple({slot.index: slot for slot in slots.values()}.values()), weights


def _slot(
    index: int,
    names: tuple[str, ...],
    tensor: torch.Tensor,
    *,
    is_whole: bool,
    mutated: Collection[str],
    saved: Collection[str],
) -> Slot:
    shape = tuple(tensor.shape)
    return Slot(
        index=index,
        dtype=dtype_name(tensor.dtype),
        shape=shape,
        stride=layout(shape, tensor.stride()) if is_whole else contiguous(shape),
        device=tensor.device.type,
        names=names,
        mutated=any(name in mutated for name in names),
        transient=not any(name in saved for name in names),
    )


def _engine_weight(index: int, node: fx.Node, recipe: Recipe, slots: Mapping[str | int, Slot]) -> EngineWeight:
    value = node.meta["val"]
    shape = tuple(value.shape)
    stride = slots[recipe.weight].stride if isinstance(recipe, WeightRef) else layout(shape, value.stride())
    if stride != value.stride():
        node.meta["val"] = value.contiguous()
    weight = EngineWeight(
        index=index,
        recipe=rename(recipe, lambda name: slots[name].index),
        dtype=dtype_name(value.dtype),
        shape=shape,
        stride=stride,
        device=value.device.type,
        slots=tuple(slots[name] for name in dict.fromkeys(sources(recipe))),
    )
    node.meta["engine_weight"] = weight
    return weight


_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def render(program: LoweredProgram) -> str:
    """Return a line for each node in canonical order: its name, result, operator and arguments.

    Weights are ``w0``, ``w1``, ..., constants ``c0``, ..., inputs ``in0``, ... by leaf of the arguments, and other
    nodes are named after their operator, ``relu``, ``relu_1``, ...: as in ``trtcache why``.
    """
    node_names = NodeNames()
    names: dict[fx.Node, str] = {}
    lines = []
    for node in program.order:
        names[node] = _name(node, node_names)
        lines.append(f"{names[node]}: {_format_result(node)}{_how(node, program.arguments[node], names)}")
    output = program.graph_module.graph.output_node()
    roles = [role.kind for role in output.meta["roles"]]
    sizes = iter([describe(one.value, {}) for one in program.interface.results if one.kind == "size"])
    results = (
        f"size {next(sizes)}" if kind == "size" else f"{kind} {_value(value, names)}"
        for kind, value in zip(roles, output.args[0], strict=True)  # type: ignore[arg-type]
    )
    return "\n".join([*lines, f"return {', '.join(results)}"]) + "\n"


def listing(graph: fx.Graph) -> list[str]:
    """Return a line for each node of a graph, before slots are numbered and with torch's own names."""
    names = {node: node.name for node in graph.nodes}
    return [f"{node.name}: {_format_result(node)} = {_format_node(node, names)}" for node in graph.nodes]


def _format_node(node: fx.Node, names: dict[fx.Node, str]) -> str:
    if node.op == "placeholder":
        return f"weight {node.meta['weight']}" if "weight" in node.meta else f"input {node.meta.get('input')}"
    called = operator_name(node.target) if node.op == "call_function" else f"{node.op} {node.target}"
    keywords = [f"{name}={_value(one, names)}" for name, one in node.kwargs.items()]
    return f"{called}({', '.join([*(_value(one, names) for one in node.args), *keywords])})"


def _name(node: fx.Node, node_names: NodeNames) -> str:
    if "engine_weight" in node.meta:
        return str(node.meta["engine_weight"].name)
    if "constant" in node.meta:
        return str(node.meta["constant"][0])
    if "input" in node.meta:
        return f"in{node.meta['input']}"
    return node_names.call(operator_name(node.target))


def _how(node: fx.Node, arguments: list[Any], names: dict[fx.Node, str]) -> str:
    if node.op == "call_function":
        where = " in torch" if "torch_executed" in node.meta else ""
        return f" = {operator_name(node.target)}{where}({_format_list(arguments, names)})"
    weight = node.meta.get("engine_weight")
    return f" = {recipes.text(weight.recipe)}" if weight and weight.slot is None else ""


def _format_result(node: fx.Node) -> str:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return ", ".join(_tensor(one) if isinstance(one, torch.Tensor) else str(one) for one in values)


def _tensor(value: torch.Tensor) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    letters = dtype.rstrip("0123456789")
    return f"{_SHORT.get(letters, letters)}{dtype[len(letters) :]}[{','.join(map(str, value.shape))}]"


def _format_list(arguments: list[Any], names: dict[fx.Node, str]) -> str:
    return ", ".join(_value(one, names) for one in arguments)


def _value(argument: Any, names: dict[fx.Node, str]) -> str:
    if isinstance(argument, fx.Node):
        return names.get(argument, f"in{argument.meta['input']}" if "input" in argument.meta else argument.name)
    if isinstance(argument, (list, tuple)):
        return f"[{_format_list(list(argument), names)}]"
    return repr(argument)
