"""Proof that a plan is refittable: each engine weight reaches the network intact and under its own name.

A name alone proves nothing if the parser has merged weights, so the network is queried. Weights that it does not accept
as refittable are frozen: the plan contains their values, and other values need another plan.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.onnx_export import source_line
from trtcache.backends.tensorrt.engine import REFITTABLE
from trtcache.backends.tensorrt.runner import dtypes_of
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BuildError, FrozenWeightsError, UnsupportedOperatorError
from trtcache.weights.slots import dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import fx

    from trtcache.backends.tensorrt.build import Network
    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface, TensorInput, TensorOutput

_UNKNOWN = frozenset({torch.float64, torch.complex32, torch.complex64, torch.complex128})
_REMEDY = "convert the model and its inputs to float32 (model.float()), or use the aot_inductor backend"


@frozen_dataclass
class Proof:
    """The refittable and frozen weights of a network.

    Attributes:
        refittable: names of the engine weights that it can refit.
        frozen: the other weights, with the reason.
    """

    refittable: tuple[str, ...]
    frozen: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Json]:
        """Return the proof as stored beside the plan."""
        return {"refittable": list(self.refittable), "frozen": dict(self.frozen)}


def prove(network: Network, interface: Interface, kind: str) -> Proof:
    """Query the network for each engine weight, and mark the refittable ones.

    Raises:
        BuildError: a slot is in no engine weight, so its values would not reach the plan.
    """
    weights = interface.weights
    reached = {slot.index for weight in weights for slot in weight.slots}
    if lost := [slot.names[0] for slot in interface.slots if slot.index not in reached]:
        raise BuildError(kind, f"these weights do not reach the network: {', '.join(lost)}")
    refittable, frozen = [], {}
    for weight in weights:
        if weight.dtype in REFITTABLE and network.definition.mark_weights_refittable(weight.name):
            refittable.append(weight.name)
        else:
            names = ", ".join(slot.names[0] for slot in weight.slots if slot.names)
            why = "the network has no refittable weight of this name"
            if weight.dtype not in REFITTABLE:
                which = f"of {', '.join(sorted(REFITTABLE))}" if "float" in weight.dtype else "of floating point"
                why = f"TensorRT refits weights {which} only, and this is {weight.dtype}"
            frozen[weight.name] = f"{names}: {why}"
    return Proof(tuple(refittable), frozen)


def require_complete(proof: Proof, interface: Interface, kind: str) -> None:
    """Reject a refittable plan with a frozen weight whose values are not in its key.

    The key has the values of slots of other dtypes, so weights of those alone may be frozen.

    Raises:
        FrozenWeightsError: the message names the weights, each with its reason, and what to do.
    """
    taken = [one.name for one in interface.weights if any(slot.dtype in REFITTABLE for slot in one.slots)]
    if reasons := [proof.frozen[name] for name in taken if name in proof.frozen]:
        raise FrozenWeightsError(kind, "; ".join(reasons))


def unmark(network: Network, proof: Proof) -> None:
    """Remove the marks, for a plan that is built for one set of weights."""
    for name in proof.refittable:
        network.definition.unmark_weights_refittable(name)


def require_known(program: LoweredProgram, kind: str) -> None:
    """Reject a program with a float64 or complex tensor.

    Raises:
        UnsupportedOperatorError: an operator computes one; the message names the line of the user's model.
        BuildError: an input, a weight or a constant is one.
    """
    used = set(program.order)
    for node in program.graph_module.graph.nodes:
        if node in used or "input" in node.meta:
            values = node.meta.get("val")
            for value in values if isinstance(values, (list, tuple)) else [values]:
                if isinstance(value, torch.Tensor) and value.dtype in _UNKNOWN:
                    raise _refusal(node, dtype_name(value.dtype), kind)


def _refusal(node: fx.Node, dtype: str, kind: str) -> BuildError:
    if node.op == "call_function":
        where = source_line(node.stack_trace or "")
        return UnsupportedOperatorError(
            kind, f"it computes {dtype}, which TensorRT does not support", node.name, str(node.target), where
        )
    if "input" in node.meta:
        what = f"input {node.meta['input']} of the program"
    elif "engine_weight" in node.meta:
        what = f"the weight {node.meta['engine_weight'].label}"
    else:
        what = f"the constant {node.target}"
    return BuildError(kind, f"{what} is {dtype}, which TensorRT does not support; {_REMEDY}")


def require_matching_ports(
    trt: Any, network: Network, interface: Interface, arguments: Sequence[str], kind: str
) -> None:
    """Check that a parsed network has the program's inputs and outputs.

    ``arguments`` are the names of the inputs in the order of a call.
    """
    definition, dtypes = network.definition, dtypes_of(trt)
    taken = {port.name: port for port in map(definition.get_input, range(definition.num_inputs))}
    given = {port.name: port for port in map(definition.get_output, range(definition.num_outputs))}
    _compare("input", taken, dict(zip(arguments, interface.inputs, strict=True)), dtypes, kind)
    # Outputs are unknown if an ONNX file leaves their sizes open.
    _compare("output", given, dict(zip(network.model.outputs, interface.outputs, strict=False)), dtypes, kind)


def _compare(
    side: str,
    ports: Mapping[str, Any],
    wanted: Mapping[str, TensorInput] | Mapping[str, TensorOutput],
    dtypes: Mapping[Any, torch.dtype],
    kind: str,
) -> None:
    for name, spec in wanted.items():
        if name not in ports:
            continue
        port, why = ports[name], ""
        try:
            shape = tuple(port.shape)
        except ValueError:  # its rank is unknown
            shape = None
        dtype = dtypes.get(port.dtype)
        if dtype is None or dtype_name(dtype) != spec.dtype:
            why = f"{port.dtype}, which is {spec.dtype} in the program"
        elif shape is not None:
            pairs = zip(shape, spec.shape, strict=False)
            if len(shape) != len(spec.shape) or any(type(two) is int and one not in (-1, two) for one, two in pairs):
                why = f"of shape {shape}, which is {tuple(spec.shape)} in the program"
        if why:
            remedy = "use the aot_inductor backend, or correct the ONNX file"
            raise BuildError(kind, f"the parser made {side} {name} {why}; {remedy}")
