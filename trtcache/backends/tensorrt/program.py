"""A lowered program as an exported one whose weights are arguments of the call, which is what ``torch.onnx`` reads."""

from __future__ import annotations

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

from trtcache.errors import BuildError
from trtcache.lowering.interface import NOT_COMPUTED

if TYPE_CHECKING:
    from trtcache.lowering import LoweredProgram

aten = torch.ops.aten


def input_name(leaf: int) -> str:
    """Return what a plan calls the leaf of the call's arguments."""
    return f"in{leaf}"


def output_name(place: int) -> str:
    """Return what a plan calls one of its outputs, by its place among those that are tensors."""
    return f"out{place}"


def weights_as_inputs(program: LoweredProgram, kind: str) -> ExportedProgram:
    """Return the program with its inputs (``in0``, ...) and then its engine weights (``w0``, ...) as arguments.

    Constants stay constants (``c0``, ...). The outputs are results and new contents of inputs, in order.

    Args:
        program: a lowered program.
        kind: the kind of engine that it is for.

    Raises:
        BuildError: calls change a weight, which a plan cannot; it names the weight.
    """
    writer = _Writer(program)
    writer.write_inputs()
    writer.write_nodes()
    return writer.exported(_outputs(program, kind))


def _outputs(program: LoweredProgram, kind: str) -> list[fx.Node]:
    output = program.graph_module.graph.output_node()
    roles = list(zip(output.meta["roles"], output.args[0], strict=True))  # type: ignore[arg-type]  # a list
    if changed := [str(role.target) for role, _ in roles if role.kind == "weight"]:
        raise BuildError(kind, f"calls change {', '.join(changed)}, and a plan keeps no state between calls")
    return [node for role, node in roles if role.kind not in NOT_COMPUTED]


class _Writer:
    """Copies a lowered graph, nodes in canonical order, so that equal programs give equal graphs."""

    def __init__(self, program: LoweredProgram) -> None:
        self._program = program
        self._graph = fx.Graph()
        self._copies: dict[fx.Node, fx.Node] = {}
        self._specs: list[InputSpec] = []

    def write_inputs(self) -> None:
        """Write constants, inputs and weights, in this order."""
        constants: dict[str, fx.Node] = {}
        for node in self._program.order:
            if node.op == "get_attr":
                name = node.meta["constant"][0]
                if name not in constants:
                    constants[name] = self._placeholder(name, node, InputKind.CONSTANT_TENSOR)
                self._copies[node] = constants[name]
        for node in self._program.graph_module.graph.find_nodes(op="placeholder"):
            if "input" in node.meta:
                self._placeholder(input_name(node.meta["input"]), node, InputKind.USER_INPUT)
        for node in self._program.order:
            if "engine_weight" in node.meta:
                self._placeholder(node.meta["engine_weight"].name, node, InputKind.USER_INPUT)

    def _placeholder(self, name: str, node: fx.Node, kind: InputKind) -> fx.Node:
        copy = self._graph.placeholder(name)
        copy.meta["val"] = node.meta["val"]
        self._copies[node] = copy
        target = name if kind is InputKind.CONSTANT_TENSOR else None
        self._specs.append(InputSpec(kind, TensorArgument(name=copy.name), target))
        return copy

    def write_nodes(self) -> None:
        """Write the calls."""
        for node in self._program.order:
            if node not in self._copies:
                self._copies[node] = self._graph.node_copy(node, self._copies.__getitem__)
                if node.target is aten.reshape.default:
                    self._lay_out_argument(self._copies[node])

    def _lay_out_argument(self, reshape: fx.Node) -> None:
        """Let a reshape see contiguous memory.

        torch.onnx traces a reshape into a view by the strides that one trace sees, and another one sees others: of an
        attention in T5 and in Swin "Cannot view a tensor" (torch 2.13). In ONNX the copy is nothing.
        """
        source: Any = reshape.args[0]
        with self._graph.inserting_before(reshape):
            copy = self._graph.call_function(aten.clone.default, (source,), {"memory_format": torch.contiguous_format})
        copy.meta["val"] = source.meta["val"].contiguous()
        reshape.args = (copy, *reshape.args[1:])

    def exported(self, outputs: list[fx.Node]) -> ExportedProgram:
        """Return the program; an output that is returned twice or is an input is a copy of it."""
        results: list[fx.Node] = []
        for node in outputs:
            made = self._copies[node]
            if made in results or made.op == "placeholder":
                value = made.meta["val"]
                made = self._graph.call_function(aten.clone.default, (made,))
                made.meta["val"] = value
            results.append(made)
        self._graph.output(tuple(results))
        specs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=one.name), None) for one in results]
        return ExportedProgram(
            root=torch.nn.Module(),
            graph=self._graph,
            graph_signature=ExportGraphSignature(self._specs, specs),
            state_dict={},
            range_constraints=dict(self._program.constraints),
            module_call_graph=[self._call(len(results))],
            constants=dict(self._program.constants),
        )

    def _call(self, results: int) -> ModuleCallEntry:
        names = [spec.arg.name for spec in self._specs if spec.kind is InputKind.USER_INPUT]
        arguments = pytree.tree_structure((tuple(names), {}))
        returned = pytree.tree_structure(tuple(range(results)))
        return ModuleCallEntry("", ModuleCallSignature([], [], arguments, returned, names))
