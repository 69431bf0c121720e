"""Forms of a lowered program for builders: an exported program, or a graph module.

Nodes are in canonical order and names are numbers, so that equal programs give equal graphs: inputs are ``in0``, ...,
engine weights ``w0``, ... and constants ``c0``, ....
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils import _pytree as pytree
from torch.utils._pytree import tree_leaves

from trtcache.errors import BuildError
from trtcache.lowering.interface import NOT_COMPUTED

if TYPE_CHECKING:
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Result


def node_dtypes(node: fx.Node) -> frozenset[torch.dtype]:
    """Return the dtypes of the tensors that a node takes, and of those of its results that are used.

    Of an operator with several results those count that a ``getitem`` node reads, and a ``getitem`` node has the dtypes
    of its operator: both are in one partition.
    """
    if node.target is operator.getitem:
        node = node.all_input_nodes[0]
    result = node.meta.get("val")
    if isinstance(result, (list, tuple)):
        result = [user.meta.get("val") for user in node.users if user.target is operator.getitem]
    values = [result, *(argument.meta.get("val") for argument in node.all_input_nodes)]
    return frozenset(leaf.dtype for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


aten = torch.ops.aten


def input_name(leaf: int) -> str:
    """Return the name of the input for a leaf of the call's arguments."""
    return f"in{leaf}"


def to_exported_program(program: LoweredProgram, backend: str) -> ExportedProgram:
    """Return the program as an ``ExportedProgram`` whose arguments are its inputs and then its engine weights.

    Constants stay constants. The outputs are results and new contents of inputs, in order.

    Args:
        program: the lowered program.
        backend: the backend's name, for the error.

    Raises:
        BuildError: calls modify a weight, which this form cannot express; the message names the weight.
    """
    roles = _outputs(program)
    if changed := [str(role.target) for role, _ in roles if role.kind == "weight"]:
        raise BuildError(backend, f"calls change {', '.join(changed)}, and an engine keeps no state between calls")
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    specs = _copy_inputs(program, graph, copies)
    _copy_calls(program, graph, copies)
    results: list[fx.Node] = []
    for role, node in roles:
        if role.kind in NOT_COMPUTED:
            continue
        made = copies[node]
        if made in results or made.op == "placeholder":  # an output that is returned twice or is an input is copied
            made = _copy_value(graph.call_function(aten.clone.default, (made,)), made)
        results.append(made)
    graph.output(tuple(results))
    names = [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]
    arguments = pytree.tree_structure((tuple(names), {}))
    returned = pytree.tree_structure(tuple(range(len(results))))
    call = ModuleCallEntry("", ModuleCallSignature([], [], arguments, returned, names))
    output_specs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=one.name), None) for one in results]
    return ExportedProgram(
        root=torch.nn.Module(),
        graph=graph,
        graph_signature=ExportGraphSignature(specs, output_specs),
        state_dict={},
        range_constraints=dict(program.constraints),
        module_call_graph=[call],
        constants=dict(program.constants),
    )


def _copy_inputs(program: LoweredProgram, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> list[InputSpec]:
    """Copy constants, inputs and weights, in this order, as placeholders, and return their specs."""
    specs: list[InputSpec] = []

    def add_placeholder(name: str, node: fx.Node, kind: InputKind) -> fx.Node:
        copies[node] = copy = _copy_value(graph.placeholder(name), node)
        target = name if kind is InputKind.CONSTANT_TENSOR else None
        specs.append(InputSpec(kind, TensorArgument(name=copy.name), target))
        return copy

    constants: dict[str, fx.Node] = {}
    for node in program.order:
        if node.op == "get_attr":
            name = node.meta["constant"][0]
            if name not in constants:
                constants[name] = add_placeholder(name, node, InputKind.CONSTANT_TENSOR)
            copies[node] = constants[name]
    for node in program.graph_module.graph.find_nodes(op="placeholder"):
        if "input" in node.meta:
            add_placeholder(input_name(node.meta["input"]), node, InputKind.USER_INPUT)
    for node in program.order:
        if "engine_weight" in node.meta:
            add_placeholder(node.meta["engine_weight"].name, node, InputKind.USER_INPUT)
    return specs


def _copy_calls(program: LoweredProgram, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> None:
    """Copy the calls in canonical order, so that equal programs give equal graphs."""
    for node in program.order:
        if node in copies:
            continue
        copy = copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.target is aten.reshape.default:
            # Its argument is made contiguous: torch.onnx traces a reshape into a view by the strides of one trace, and
            # a later trace has others: "Cannot view a tensor" for attention in T5 and Swin (torch 2.13). In ONNX the
            # copy is removed.
            source: Any = copy.args[0]
            contiguous: dict[str, Any] = {"memory_format": torch.contiguous_format}
            with graph.inserting_before(copy):
                dense = graph.call_function(aten.clone.default, (source,), contiguous)
            dense.meta["val"] = source.meta["val"].contiguous()
            copy.args = (dense, *copy.args[1:])


def to_graph_module(program: LoweredProgram, backend: str) -> fx.GraphModule:
    """Return the program as a graph module that takes its inputs and then its engine weights.

    Constants are buffers. It returns results and new contents of inputs, in order.

    Args:
        program: the lowered program.
        backend: the backend's name, for the error.

    Raises:
        BuildError: calls modify a weight, which this form cannot express; the message names the weight.
    """
    graph = to_exported_program(program, backend).graph
    root = torch.nn.Module()
    for name, tensor in program.constants.items():
        root.register_buffer(name, tensor)
    for node in graph.find_nodes(op="placeholder"):
        if node.target in program.constants:
            with graph.inserting_before(node):
                constant = _copy_value(graph.create_node("get_attr", str(node.target)), node)
            node.replace_all_uses_with(constant)
            graph.erase_node(node)
    return fx.GraphModule(root, graph)


def to_module_with_weights(
    program: LoweredProgram, values: Mapping[str, torch.Tensor] | None = None
) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """Return the program as a graph module whose weights and constants are buffers, and example inputs for it.

    Weights without ``values`` have none. New contents of weights are copied into them; new contents of inputs are
    outputs.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    root = torch.nn.Module()
    for node in program.graph_module.graph.find_nodes(op="placeholder"):
        if "input" in node.meta:
            copies[node] = _copy_value(graph.placeholder(input_name(node.meta["input"])), node)
    for weight in program.interface.weights:
        place = program.device if weight.device == program.device.type else torch.device(weight.device)
        empty = torch.empty_strided(weight.shape, weight.stride, dtype=getattr(torch, weight.dtype), device=place)
        root.register_buffer(weight.name, (values or {}).get(weight.name, empty))
    for name, tensor in program.constants.items():
        root.register_buffer(name, tensor)
    stores = _stores(program)
    influences = _influences(program.order, {*stores, *stores.values()})
    order, cycles = _overwriting_order(stores, influences)
    # Inductor overwrites weights in the order in which a graph first reads them, not in that of the copies.
    for node in (*order, *program.order):
        if node in copies:
            continue
        if "engine_weight" in node.meta or "constant" in node.meta:
            name = node.meta["engine_weight"].name if "engine_weight" in node.meta else node.meta["constant"][0]
            copies[node] = _copy_value(graph.create_node("get_attr", name), node)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    # A result shares no memory with a weight that is overwritten, nor with an argument that is copied into one. Which
    # operators Inductor takes for views, or removes, is not known here: each result that depends on these is computed
    # again.
    results = [
        _recompute(graph, copies[value]) if influences.get(value) else copies[value]
        for role, value in _outputs(program)
        if role.kind not in {*NOT_COMPUTED, "weight"}
    ]
    contents = {
        node: _recompute(graph, copies[value]) if node in cycles else copies[value] for node, value in stores.items()
    }
    for node in order:
        _copy_value(graph.call_function(aten.copy_.default, (copies[node], contents[node])), node)
    graph.output(tuple(results))
    inputs = [node for node in copies if "input" in node.meta]
    return fx.GraphModule(root, graph), tuple(node.meta["val"] for node in inputs)


def _copy_value(copy: fx.Node, node: fx.Node) -> fx.Node:
    copy.meta["val"] = node.meta["val"]
    return copy


def _outputs(program: LoweredProgram) -> list[tuple[Result, fx.Node]]:
    output = program.graph_module.graph.output_node()
    return list(zip(output.meta["roles"], output.args[0], strict=True))  # type: ignore[arg-type]  # a list


def _stores(program: LoweredProgram) -> dict[fx.Node, fx.Node]:
    """Return the weights that a call overwrites, each with its new content."""
    weights = [(node, node.meta["engine_weight"].slot) for node in program.order if "engine_weight" in node.meta]
    nodes = {name: node for node, slot in weights if slot for name in slot.names}
    return {nodes[role.target]: value for role, value in _outputs(program) if role.kind == "weight"}


def _influences(order: Iterable[fx.Node], origins: Collection[fx.Node]) -> dict[fx.Node, set[fx.Node]]:
    """Return for each node those of some nodes that it is or depends on."""
    found: dict[fx.Node, set[fx.Node]] = {}
    for node in order:
        found[node] = set().union(*(found.get(one, ()) for one in node.all_input_nodes))
        if node in origins:
            found[node].add(node)
    return found


def _overwriting_order(
    stores: Mapping[fx.Node, fx.Node], influences: Mapping[fx.Node, set[fx.Node]]
) -> tuple[list[fx.Node], set[fx.Node]]:
    """Return the order in which to overwrite weights, and those whose new contents must be computed again before.

    A new content may be the old content of another weight, which is then overwritten later. Weights of a cycle are
    computed again, the smallest first: that costs a copy, of a whole cache for one new token.
    """
    order: list[fx.Node] = []
    cycles: set[fx.Node] = set()
    pending = list(stores)
    while pending:
        waiting = [weight for weight in pending if weight not in cycles]
        read = set().union(*(influences[stores[weight]] - {weight} for weight in waiting))
        if free := [weight for weight in pending if weight not in read]:
            order += free
            pending = [weight for weight in pending if weight in read]
        else:
            cycles.add(min(waiting, key=lambda weight: weight.meta["val"].nbytes))
    return order, cycles


def _recompute(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Return the same value, computed again.

    ``clone`` does not help: torch/_inductor/fx_passes/post_grad.py removes it, as it tracks inputs but not attributes.
    """

    def call(operator: Any, *args: Any) -> fx.Node:
        made = graph.call_function(operator, args)
        values = [one.meta["val"] if isinstance(one, fx.Node) else one for one in args]
        made.meta["val"] = operator(*values)
        return made

    value = node.meta["val"]
    if value.dtype is torch.bool:
        made = call(aten.bitwise_or.Tensor, node, node)
    elif value.dtype.is_complex:  # a product with 1 + 0j is NaN where a part is infinite
        resolved = call(aten.resolve_conj.default, node) if value.is_conj() else node
        parts = call(aten.mul.Tensor, call(aten.view_as_real.default, resolved), 1)
        made = call(aten.view_as_complex.default, parts)
    elif value.dtype.is_floating_point and value.dtype.itemsize == 1:  # there is no arithmetic on float8
        made = call(aten.view.dtype, call(aten.mul.Tensor, call(aten.view.dtype, node, torch.int8), 1), value.dtype)
    else:
        made = call(aten.mul.Tensor, node, 1)
    made.meta["val"] = value
    return made
