"""Refuses what TensorRT would compute in another dtype than the program says, without a word.

TensorRT has no float64 and no complex numbers: its parser reads float64 as float32, and torch.onnx writes a complex
tensor as pairs of numbers. A plan of such a program is one of another program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.tensorrt.border import dtypes_of
from trtcache.backends.tensorrt.onnx import place_of
from trtcache.errors import BuildError, UnsupportedOperatorError
from trtcache.weights.slots import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import fx

    from trtcache.backends.tensorrt.network import Network
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface, TensorInput, TensorOutput

_UNKNOWN = frozenset({torch.float64, torch.complex32, torch.complex64, torch.complex128})
_REMEDY = "convert the model and its inputs to float32 (model.float()), or use the aot_inductor backend"


def require_known(program: LoweredProgram, kind: str) -> None:
    """Refuse a program in which a tensor is float64 or complex.

    Raises:
        UnsupportedOperatorError: an operator makes one; it names the line of the user's model.
        BuildError: an input, a weight or a constant is one.
    """
    used = set(program.order)
    for node in program.graph_module.graph.nodes:
        if node in used or "input" in node.meta:
            for value in _tensors(node.meta.get("val")):
                if value.dtype in _UNKNOWN:
                    raise _refusal(node, dtype_name(value.dtype), kind)


def _tensors(value: object) -> list[torch.Tensor]:
    values: Iterable[object] = value if isinstance(value, (list, tuple)) else [value]
    return [one for one in values if isinstance(one, torch.Tensor)]


def _refusal(node: fx.Node, dtype: str, kind: str) -> BuildError:
    if node.op == "call_function":
        where = place_of(node.stack_trace or "")
        return UnsupportedOperatorError(
            kind, f"it makes {dtype}, which TensorRT has not", node.name, str(node.target), where
        )
    if "input" in node.meta:
        what = f"input {node.meta['input']} of the program"
    elif "engine_weight" in node.meta:
        what = f"the weight {node.meta['engine_weight'].label}"
    else:
        what = f"the constant {node.target}"
    return BuildError(kind, f"{what} is {dtype}, which TensorRT has not; {_REMEDY}")


def require_border(trt: Any, network: Network, interface: Interface, arguments: Sequence[str], kind: str) -> None:
    """Make sure that a parsed network takes and gives what the program does.

    Args:
        trt: TensorRT's module.
        network: what the parser made.
        interface: the program's border.
        arguments: names of the inputs in the order of a call.
        kind: the kind of engine that it is for.

    Raises:
        BuildError: an input or an output has another dtype, rank or size than in the program.
    """
    definition, dtypes = network.definition, dtypes_of(trt)
    taken = {port.name: port for port in map(definition.get_input, range(definition.num_inputs))}
    given = {port.name: port for port in map(definition.get_output, range(definition.num_outputs))}
    _compare("input", taken, dict(zip(arguments, interface.inputs, strict=True)), dtypes, kind)
    # Outputs are not known where an ONNX file leaves their sizes open.
    _compare("output", given, dict(zip(network.model.outputs, interface.outputs, strict=False)), dtypes, kind)


def _compare(
    side: str,
    ports: Mapping[str, Any],
    wanted: Mapping[str, TensorInput] | Mapping[str, TensorOutput],
    dtypes: Mapping[Any, torch.dtype],
    kind: str,
) -> None:
    for name, one in wanted.items():
        if name in ports and (why := _difference(ports[name], one, dtypes)):
            remedy = "use the aot_inductor backend, or, of an ONNX file, correct what it says"
            raise BuildError(kind, f"the parser made {side} {name} {why}; {remedy}")


def _difference(port: Any, wanted: TensorInput | TensorOutput, dtypes: Mapping[Any, torch.dtype]) -> str:
    """Return what a port is and should be, empty where it is that."""
    dtype = dtypes.get(port.dtype)
    if dtype is None or dtype_name(dtype) != wanted.dtype:
        return f"{port.dtype}, which is {wanted.dtype} in the program"
    shape = _shape(port)
    if shape is None:
        return ""
    pairs = list(zip(shape, wanted.shape, strict=False))
    if len(shape) != len(wanted.shape) or any(type(two) is int and one not in (-1, two) for one, two in pairs):
        return f"of shape {shape}, which is {tuple(wanted.shape)} in the program"
    return ""


def _shape(port: Any) -> tuple[int, ...] | None:
    try:
        return tuple(port.shape)
    except ValueError:  # its rank is not known
        return None
