"""From a lowered program to ONNX with every weight whole, under the name that the weight map has for it.

``torch.onnx`` folds and transposes initializers under unchanged or new names. So weights go through its optimiser as
inputs of the graph, which it cannot touch, and become initializers afterwards. Those have no data in the model: whoever
reads it is given the weights' own memory.
"""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.tensorrt.program import input_name, output_name, weights_as_inputs
from trtcache.errors import BuildError, UnsupportedOperatorError
from trtcache.lowering.capture import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import fx

    from trtcache.lowering import LoweredProgram

_TRACE = "pkg.torch.onnx.stack_trace"
_CHATTY = ("torch.onnx", "onnxscript", "onnx_ir")

# How torch/onnx/_internal/exporter/_core.py words its errors (torch 2.11 to 2.13).
_NO_ONNX = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")
_AT_NODE = re.compile(r"Error when translating node %(\w+)")


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """An ONNX model that a builder can read, wherever it came from.

    Attributes:
        content: the serialized ``ModelProto``; the initializers that ``weights`` names have no data in it.
        weights: the tensors behind them, contiguous, on the CPU; the builder reads their memory.
        inputs: names of the model's inputs.
        outputs: names of its outputs.
        places: the line of the user's model behind a node, by the node's name, where it is known.
    """

    content: bytes
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    places: Mapping[str, str]


def to_onnx(program: LoweredProgram, weights: Mapping[str, torch.Tensor], kind: str) -> OnnxModel:
    """Return a lowered program as ONNX.

    Args:
        program: the program.
        weights: its engine weights by name, as ``trtcache.weights.slots.fit`` makes them.
        kind: the kind of engine that it is for.

    Raises:
        UnsupportedOperatorError: torch has no ONNX for an operator.
        BuildError: torch cannot write the program as ONNX.
    """
    proto = _exported(program, kind)
    _weights_to_initializers(proto, weights)
    return OnnxModel(
        content=proto.SerializeToString(),
        weights={name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()},
        inputs=tuple(one.name for one in proto.graph.input),
        outputs=tuple(one.name for one in proto.graph.output),
        places=_places(proto),
    )


def _exported(program: LoweredProgram, kind: str) -> Any:
    exported = weights_as_inputs(program, kind)
    names = [*(input_name(one.leaf) for one in program.interface.inputs), *(w.name for w in program.interface.weights)]
    results = [output_name(place) for place in range(len(exported.graph_signature.output_specs))]
    try:
        with quiet(), _silent():
            written = torch.onnx.export(
                exported, dynamo=True, optimize=True, verbose=False, input_names=names, output_names=results
            )
    except Exception as error:
        raise _failure(error, exported.graph, kind) from error
    return written.model_proto  # type: ignore[union-attr]  # dynamo=True always returns one


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what torch.onnx and its libraries say about their own working from the user's screen."""
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


def _weights_to_initializers(proto: Any, weights: Mapping[str, torch.Tensor]) -> None:
    from onnx import TensorProto

    inputs = {one.name: one for one in proto.graph.input}
    for name, tensor in weights.items():
        given = inputs[name]
        stub = TensorProto(name=name, dims=list(tensor.shape), data_type=given.type.tensor_type.elem_type)
        stub.data_location = TensorProto.EXTERNAL
        stub.external_data.add(key="location", value="weights")
        proto.graph.initializer.append(stub)
        proto.graph.input.remove(given)


def _places(proto: Any) -> dict[str, str]:
    """Return the line that each node comes from: the innermost one of its stack that is neither torch's nor ours."""
    found = {}
    for node in proto.graph.node:
        traces = [one.value for one in node.metadata_props if one.key == _TRACE]
        if place := place_of("\n".join(traces)):
            found[node.name] = place
    return found


def place_of(trace: str) -> str:
    """Return the innermost line of a stack that is not torch's, or else the innermost one; empty for no stack."""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    users = [line for line in lines if "/site-packages/torch/" not in line]
    return (users or lines or [""])[-1].removeprefix("File ").replace('"', "")


def _failure(error: Exception, graph: fx.Graph, kind: str, most: int = 800) -> BuildError:
    """Return what torch.onnx failed of: the operator that it has no ONNX for, or what it says."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    operator = _NO_ONNX.search(str(chain[-1]))
    node = next((found[1] for one in reversed(chain) if (found := _AT_NODE.search(str(one)))), "")
    if operator is None:
        text = f"{type(chain[-1]).__name__}: {chain[-1]}".strip()
        return BuildError(kind, f"torch.onnx: {text[:most]}")
    traces = [one.stack_trace for one in graph.nodes if one.name == node and one.stack_trace]
    where = place_of(traces[0]) if traces else ""
    return UnsupportedOperatorError(kind, "torch has no ONNX for it", node, operator[1], where)
