"""ONNX export of a lowered program, with every weight intact under its name in the weight map.

``torch.onnx`` folds and transposes initializers under unchanged or new names. So weights pass through its optimiser as
graph inputs, which it cannot modify, and become initializers afterwards. These have no data in the model: its reader
gets the weights' own memory.
"""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
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

from trtcache.errors import BuildError, UnsupportedOperatorError
from trtcache.lowering.capture import quiet
from trtcache.lowering.interface import NOT_COMPUTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trtcache.lowering import LoweredProgram

_TRACE = "pkg.torch.onnx.stack_trace"
_CHATTY = ("torch.onnx", "onnxscript", "onnx_ir")

# Error messages of torch/onnx/_internal/exporter/_core.py (torch 2.11 to 2.13).
_NO_ONNX = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")
_AT_NODE = re.compile(r"Error when translating node %(\w+)")

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """An ONNX model for a builder, exported or read from a file.

    Attributes:
        content: the serialized ``ModelProto``, without the data of the initializers in ``weights``.
        weights: the tensors of these initializers, contiguous, on the CPU; the builder reads their memory.
        inputs: names of the model's inputs.
        outputs: names of its outputs.
        places: the line of the user's model for each node, by name, if known.
    """

    content: bytes
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    places: Mapping[str, str]


def to_onnx(program: LoweredProgram, weights: Mapping[str, torch.Tensor], kind: str) -> OnnxModel:
    """Export a lowered program to ONNX; ``weights`` are its engine weights by name.

    Raises:
        BuildError: torch cannot export the program, or an operator of it (UnsupportedOperatorError).
    """
    from onnx import TensorProto

    exported = weights_as_inputs(program, kind)
    names = [*(input_name(one.leaf) for one in program.interface.inputs), *(w.name for w in program.interface.weights)]
    results = [f"out{place}" for place in range(len(exported.graph_signature.output_specs))]
    try:
        with quiet(), _quiet_exporter():
            written = torch.onnx.export(
                exported, dynamo=True, optimize=True, verbose=False, input_names=names, output_names=results
            )
    except Exception as error:
        raise _failure(error, exported.graph, kind) from error
    proto: Any = written.model_proto  # type: ignore[union-attr]  # dynamo=True always returns one
    # Weights become initializers without data.
    inputs = {given.name: given for given in proto.graph.input}
    for name, tensor in weights.items():
        elem_type = inputs[name].type.tensor_type.elem_type
        stub = TensorProto(name=name, dims=list(tensor.shape), data_type=elem_type)
        stub.data_location = TensorProto.EXTERNAL
        stub.external_data.add(key="location", value="weights")
        proto.graph.initializer.append(stub)
        proto.graph.input.remove(inputs[name])
    places = {}
    for node in proto.graph.node:
        traces = [entry.value for entry in node.metadata_props if entry.key == _TRACE]
        if place := source_line("\n".join(traces)):
            places[node.name] = place
    return OnnxModel(
        content=proto.SerializeToString(),
        weights={name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()},
        inputs=tuple(one.name for one in proto.graph.input),
        outputs=tuple(one.name for one in proto.graph.output),
        places=places,
    )


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence warnings and logs of torch.onnx and its libraries."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def source_line(trace: str) -> str:
    """Return the innermost line of a stack outside of torch, or else the innermost one; empty without a stack."""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    users = [line for line in lines if "/site-packages/torch/" not in line]
    return (users or lines or [""])[-1].removeprefix("File ").replace('"', "")


def _failure(error: Exception, graph: fx.Graph, kind: str, most: int = 800) -> BuildError:
    """Return the error for a failed export: the operator that cannot be exported, or torch's message."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    operator = _NO_ONNX.search(str(chain[-1]))
    node = next((found[1] for one in reversed(chain) if (found := _AT_NODE.search(str(one)))), "")
    if operator is None:
        text = f"{type(chain[-1]).__name__}: {chain[-1]}".strip()
        return BuildError(kind, f"torch.onnx: {text[:most]}")
    traces = [one.stack_trace for one in graph.nodes if one.name == node and one.stack_trace]
    where = source_line(traces[0]) if traces else ""
    return UnsupportedOperatorError(kind, "torch has no ONNX for it", node, operator[1], where)


def input_name(leaf: int) -> str:
    """Return a plan's name for a leaf of the call's arguments."""
    return f"in{leaf}"


def weights_as_inputs(program: LoweredProgram, kind: str) -> ExportedProgram:
    """Return the program with its inputs (``in0``, ...) and then its engine weights (``w0``, ...) as arguments.

    Constants stay constants (``c0``, ...). The outputs are results and new contents of inputs, in order.

    Raises:
        BuildError: calls modify a weight, which a plan cannot; the message names the weight.
    """
    output = program.graph_module.graph.output_node()
    roles = list(zip(output.meta["roles"], output.args[0], strict=True))  # type: ignore[arg-type]  # a list
    if changed := [str(role.target) for role, _ in roles if role.kind == "weight"]:
        raise BuildError(kind, f"calls change {', '.join(changed)}, and a plan keeps no state between calls")
    writer = _Writer(program)
    writer.write_inputs()
    writer.write_nodes()
    return writer.export([node for role, node in roles if role.kind not in NOT_COMPUTED])


class _Writer:
    """Copy a lowered graph in canonical order, so that equal programs give equal graphs."""

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
            if node in self._copies:
                continue
            copy = self._copies[node] = self._graph.node_copy(node, self._copies.__getitem__)
            if node.target is aten.reshape.default:
                # Its argument is made contiguous: torch.onnx traces a reshape into a view by the strides of one trace,
                # and a later trace has others: "Cannot view a tensor" for attention in T5 and Swin (torch 2.13). In
                # ONNX the copy is removed.
                source: Any = copy.args[0]
                contiguous: dict[str, Any] = {"memory_format": torch.contiguous_format}
                with self._graph.inserting_before(copy):
                    dense = self._graph.call_function(aten.clone.default, (source,), contiguous)
                dense.meta["val"] = source.meta["val"].contiguous()
                copy.args = (dense, *copy.args[1:])

    def export(self, outputs: list[fx.Node]) -> ExportedProgram:
        """Return the program; an output that is returned twice or is an input is copied."""
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
        names = [spec.arg.name for spec in self._specs if spec.kind is InputKind.USER_INPUT]
        arguments = pytree.tree_structure((tuple(names), {}))
        returned = pytree.tree_structure(tuple(range(len(results))))
        call = ModuleCallEntry("", ModuleCallSignature([], [], arguments, returned, names))
        return ExportedProgram(
            root=torch.nn.Module(),
            graph=self._graph,
            graph_signature=ExportGraphSignature(self._specs, specs),
            state_dict={},
            range_constraints=dict(self._program.constraints),
            module_call_graph=[call],
            constants=dict(self._program.constants),
        )
