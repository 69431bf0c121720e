"""The lowered program: a graph in canonical order with numbered slots, and the model's own tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import ExportError
from trtcache.lowering.devices import device_of
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
from trtcache.lowering.operators import NodeNames, live_engines, operator_name
from trtcache.lowering.rewrites.sizes import PROVEN
from trtcache.lowering.rewriting import canonical_order, group_tied, recipe_of, shape_environment
from trtcache.lowering.symbols import Symbols, write_number
from trtcache.weights import recipes
from trtcache.weights.recipes import WeightRef, rename, sources
from trtcache.weights.slots import EngineWeight, Slot, contiguous, dtype_name, layout

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.utils._pytree import TreeSpec

    from trtcache.lowering.guards import ExportGuards
    from trtcache.lowering.marked_graph import MarkedGraph
    from trtcache.lowering.stages import PassRun


@frozen_dataclass
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
        state: every weight of the model by name; engines share memory with them.
        constant_contents: contents of the model's own constants by name: non-persistent buffers, and tensors that are
            plain attributes.
        in_spec, out_spec: how torch flattens the call's arguments and the model's output.
        symbols: the symbolic sizes, numbered.
        constraints: their ranges, by torch's names.
        pipeline: the spec strings of its passes, as in the key.
        runs: for each pass its time, whether it changed the graph, and the changes if they were traced.
        seconds: seconds by stage; later stages add theirs.
        example_sizes: the example's dynamic sizes by the numbers of their symbols, as far as they are known.
    """

    name: str
    device: torch.device
    graph_module: fx.GraphModule
    order: tuple[fx.Node, ...]
    arguments: Mapping[fx.Node, list[Any]]
    interface: Interface
    constants: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor]
    constant_contents: Mapping[str, Content]
    in_spec: TreeSpec
    out_spec: TreeSpec
    symbols: Symbols
    constraints: Mapping[Any, Any]
    pipeline: tuple[str, ...]
    runs: tuple[PassRun, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    example_sizes: Mapping[int, int] = field(default_factory=dict)

    @property
    def live(self) -> frozenset[str]:
        """The handles of the compiled modules of this process that it calls."""
        return live_engines(self.graph_module)

    @property
    def text(self) -> str:
        """The lowered program as text: a line for each node, in canonical order, with canonical names."""
        return render(self)


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

    Raises:
        ExportError: an output is neither a tensor nor a constant, the tensors are on several CUDA devices, or a guard
            cannot be checked at a call.
    """
    program = assemble_program(
        marked,
        name=name,
        in_spec=exported.call_spec.in_spec,
        out_spec=exported.call_spec.out_spec,
        constraints=exported.range_constraints,
        state_dict_names=exported.state_dict,
        pipeline=pipeline,
        runs=runs,
    )
    if guards is None:
        return program
    proven = marked.graph_module.meta.get(PROVEN, ())
    found, small_sizes = guards.finalize(proven, program.symbols, program.interface.ranges)
    inputs = tuple(
        replace(one, fixed_layout=True) if one.leaf in guards.fixed_layouts else one for one in program.interface.inputs
    )
    return replace(program, interface=replace(program.interface, inputs=inputs, guards=found, small_sizes=small_sizes))


def without_small_sizes(program: LoweredProgram) -> LoweredProgram:
    """Return the program with sizes of 0 and 1 refused where torch assumes at least 2.

    An optimization profile of TensorRT refuses them as well.
    """
    interface = program.interface
    if interface.small_sizes is None:
        return program
    small_sizes = replace(interface.small_sizes, least=tuple(least for least, _ in interface.ranges))
    return replace(program, interface=replace(interface, small_sizes=small_sizes))


def assemble_program(
    marked: MarkedGraph,
    *,
    name: str,
    in_spec: TreeSpec,
    out_spec: TreeSpec,
    constraints: Mapping[Any, Any],
    state_dict_names: Collection[str],
    pipeline: tuple[str, ...],
    runs: tuple[PassRun, ...] = (),
) -> LoweredProgram:
    """Return the program of a lowered graph; ``state_dict_names`` are those of weights in the model's state_dict."""
    graph_module, state = marked.graph_module, marked.state
    order, arguments = canonical_order(graph_module.graph)
    output = graph_module.graph.output_node()
    roles: tuple[Result, ...] = output.meta["roles"]
    symbols = Symbols()
    inputs = []
    for node in graph_module.graph.find_nodes(op="placeholder"):
        if "input" in node.meta:
            value = node.meta["val"]
            shape, stride = tuple(map(symbols.write, value.shape)), tuple(map(symbols.write, value.stride()))
            is_number = node.meta.get("number", False)
            inputs.append(
                TensorInput(node.meta["input"], dtype_name(value.dtype), shape, stride, value.device.type, is_number)
            )
    # Symbols that only occur in results, or only in outputs, get their own numbers.
    result_symbols = symbols.copy()
    results = tuple(
        replace(role, value=write_number(role.value, result_symbols)) if role.kind == "size" else role
        for role in roles
        if role.kind != "weight"
    )
    output_symbols, nodes = symbols.copy(), zip(roles, output.args[0], strict=True)  # type: ignore[arg-type]  # a tuple
    computed = [node.meta["val"] for role, node in nodes if role.kind not in {*NOT_COMPUTED, "weight"}]
    outputs = tuple(
        TensorOutput(dtype_name(value.dtype), tuple(map(output_symbols.write, value.shape)), value.device.type)
        for value in computed
    )
    mutated = {str(role.target) for role in roles if role.kind == "weight"}
    slots, weights = number_weights(order, state, mutated=mutated, state_dict_names=state_dict_names)
    constants, digests = _constants(graph_module, order)
    environment = shape_environment(graph_module.graph.find_nodes(op="placeholder"))
    known = environment.backed_var_to_val if environment is not None else {}
    return LoweredProgram(
        name=name,
        device=device_of(name, graph_module.graph.nodes),
        graph_module=graph_module,
        order=tuple(order),
        arguments=arguments,
        interface=Interface(
            inputs=tuple(inputs),
            values=tuple(ValueInput(leaf, value) for leaf, value in sorted(marked.values.items())),
            results=results,
            slots=slots,
            weights=weights,
            constants=digests,
            ranges=symbols.ranges(constraints),
            outputs=outputs,
        ),
        constants=constants,
        state=state,
        constant_contents=marked.constants,
        in_spec=in_spec,
        out_spec=out_spec,
        symbols=symbols,
        constraints=constraints,
        pipeline=pipeline,
        runs=runs,
        example_sizes={number: int(known[symbol]) for number, symbol in enumerate(symbols.order) if symbol in known},
    )


def _constants(graph_module: fx.GraphModule, order: list[fx.Node]) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """Return the constants' tensors and digests; set each constant's ``meta["constant"]`` to its name and digest."""
    tensors: dict[str, torch.Tensor] = {}
    names: dict[tuple[Content, str], str] = {}
    for node in order:
        if node.op != "get_attr":
            continue
        tensor = getattr(graph_module, str(node.target))
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(
                "the program",
                f"it has control flow with a body ({node.target}), which no engine supports; "
                "run that part outside of the compiled module",
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
    state_dict_names: Collection[str],
) -> tuple[tuple[Slot, ...], tuple[EngineWeight, ...]]:
    """Return a program's slots and engine weights; set each weight node's ``meta["engine_weight"]``.

    ``mutated`` has the names of weights that a call modifies, ``state_dict_names`` those in the model's
    state_dict.
    """
    found = [(node, recipe) for node in order if (recipe := recipe_of(node))]
    groups = group_tied(state)
    used_unchanged = {groups[str(recipe.weight)] for _, recipe in found if isinstance(recipe, WeightRef)}
    used = dict.fromkeys(groups[str(name)] for _, recipe in found for name in sources(recipe))
    slots: dict[str | int, Slot] = {}
    for index, names in enumerate(used):
        tensor = state[names[0]]
        shape = tuple(tensor.shape)
        slot = Slot(
            index=index,
            dtype=dtype_name(tensor.dtype),
            shape=shape,
            stride=layout(shape, tensor.stride()) if names in used_unchanged else contiguous(shape),
            device=tensor.device.type,
            names=names,
            mutated=any(name in mutated for name in names),
            transient=not any(name in state_dict_names for name in names),
        )
        slots |= dict.fromkeys(names, slot)
    weights = []
    for index, (node, recipe) in enumerate(found):
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
        weights.append(weight)
    return tuple({slot.index: slot for slot in slots.values()}.values()), tuple(weights)


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
        weight, definition = node.meta.get("engine_weight"), ""
        if weight is not None:
            name = str(weight.name)
        elif "constant" in node.meta:
            name = str(node.meta["constant"][0])
        elif "input" in node.meta:
            name = f"in{node.meta['input']}"
        else:
            name = node_names.call(operator_name(node.target))
        if node.op == "call_function":
            suffix = " in torch" if "torch_executed" in node.meta else ""
            arguments = ", ".join(_format_argument(one, names) for one in program.arguments[node])
            definition = f" = {operator_name(node.target)}{suffix}({arguments})"
        elif weight is not None and weight.slot is None:
            definition = f" = {recipes.text(weight.recipe)}"
        names[node] = name
        lines.append(f"{name}: {_format_result(node)}{definition}")
    output = program.graph_module.graph.output_node()
    roles = [role.kind for role in output.meta["roles"]]
    sizes = iter([describe(one.value, {}) for one in program.interface.results if one.kind == "size"])
    results = (
        f"size {next(sizes)}" if kind == "size" else f"{kind} {_format_argument(value, names)}"
        for kind, value in zip(roles, output.args[0], strict=True)  # type: ignore[arg-type]
    )
    return "\n".join([*lines, f"return {', '.join(results)}"]) + "\n"


def listing(graph: fx.Graph) -> list[str]:
    """Return a line for each node of a graph, before slots are numbered and with torch's own names."""
    names = {node: node.name for node in graph.nodes}
    lines = []
    for node in graph.nodes:
        if node.op == "placeholder":
            meta = node.meta
            text = f"weight {meta['weight']}" if "weight" in meta else f"input {meta.get('input')}"
        else:
            called = operator_name(node.target) if node.op == "call_function" else f"{node.op} {node.target}"
            keywords = [f"{name}={_format_argument(one, names)}" for name, one in node.kwargs.items()]
            text = f"{called}({', '.join([*(_format_argument(one, names) for one in node.args), *keywords])})"
        lines.append(f"{node.name}: {_format_result(node)} = {text}")
    return lines


def _format_result(node: fx.Node) -> str:
    value, texts = node.meta.get("val"), []
    for one in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(one, torch.Tensor):
            dtype = str(one.dtype).removeprefix("torch.")
            letters = dtype.rstrip("0123456789")
            sizes = ",".join(map(str, one.shape))
            texts.append(f"{_SHORT.get(letters, letters)}{dtype[len(letters) :]}[{sizes}]")
        else:
            texts.append(str(one))
    return ", ".join(texts)


def _format_argument(argument: Any, names: dict[fx.Node, str]) -> str:
    if isinstance(argument, fx.Node):
        return names.get(argument, f"in{argument.meta['input']}" if "input" in argument.meta else argument.name)
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(_format_argument(one, names) for one in argument)}]"
    return repr(argument)
