"""Operators that torch can export to ONNX, and ONNX models for builders.

``torch.onnx`` has functions for most operators and decomposes others. Importing them to find out takes seconds, and
every hit needs to know: so operators that certainly can be exported are recognised here, and those whose arguments it
would ignore.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch

from trtcache.config.frozen import frozen_dataclass

if TYPE_CHECKING:
    from torch import fx

    from trtcache.digests import Json


@frozen_dataclass
class OnnxModel:
    """An ONNX model for a builder, exported or read from a file.

    Attributes:
        content: the serialized ``ModelProto``, without the data of the initializers in ``weights``.
        weights: the tensors of these initializers, contiguous, on the CPU; the builder reads their memory. Of a file
            these are all large ones, also those that are no weights of the engine.
        inputs: names of the model's inputs.
        outputs: names of its outputs.
        places: the line of the user's model for each node, by name, if known.
    """

    content: bytes
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    places: Mapping[str, str]

    def serialize(self, as_inputs: Collection[str]) -> bytes:
        """Return the model in one piece, with some initializers as inputs after its own, and the data of all others."""
        import onnx

        model = onnx.load_model_from_string(self.content)
        graph = model.graph
        declared = {value.name for value in graph.input}
        initializers = [*graph.initializer]
        del graph.initializer[:]
        for tensor in initializers:
            if tensor.name not in as_inputs:
                if tensor.name in self.weights:
                    tensor.ClearField("external_data")
                    tensor.ClearField("data_location")
                    # A view as bytes, since NumPy has no bfloat16.
                    tensor.raw_data = self.weights[tensor.name].reshape(-1).view(torch.uint8).numpy().tobytes()
                graph.initializer.append(tensor)
            elif tensor.name not in declared:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        return bytes(model.SerializeToString())


@frozen_dataclass
class Range:
    """The shapes of one input that an engine supports: ``minimum`` (min), ``optimal`` (opt) and ``maximum`` (max)."""

    name: str
    minimum: tuple[int, ...]
    optimal: tuple[int, ...]
    maximum: tuple[int, ...]

    def document(self) -> dict[str, Json]:
        """Return the range as stored beside the engine."""
        return {"name": self.name, "min": list(self.minimum), "opt": list(self.optimal), "max": list(self.maximum)}


# Core operators of torch with neither a function nor a decomposition (torch 2.13).
_NOT_EXPORTABLE = frozenset(
    {
        *("aten._adaptive_avg_pool3d.default", "aten._cdist_forward.default", "aten._pdist_forward.default"),
        *("aten.randperm.default", "aten.avg_pool2d_backward.default", "aten.convolution_backward.default"),
        "aten._adaptive_avg_pool2d_backward.default",
    }
)
_EXPORTABLE = frozenset({"aten.scaled_dot_product_attention.default", "aten.linear.default", "aten.baddbmm.default"})

# Arguments that ONNX functions of torch have and do not use (torch 2.13, onnxscript 0.7). The others of that kind
# do not change the results of a lowered program: ``make evidence`` compares all operators (docs/evidence/onnx.md).
_IGNORED: Mapping[str, tuple[str, ...]] = {
    "aten.elu": ("input_scale",),
    "aten.avg_pool2d": ("divisor_override",),
    "aten.avg_pool3d": ("divisor_override",),
    "aten.scatter_reduce": ("reduce",),
    "aten._upsample_bilinear2d_aa": ("scales_h", "scales_w"),
    "aten._upsample_bicubic2d_aa": ("scales_h", "scales_w"),
    "quantized_decomposed.quantize_per_tensor": ("quant_min", "quant_max"),
}


_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_RESIZES = ("aten.upsample_", "aten._upsample_")


def why_no_onnx(node: fx.Node) -> str | None:
    """Return why torch cannot export a node to ONNX, or not with the results that it has in torch; None if it can."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if ignored := _ignored_argument(node, target):
        return f"torch's ONNX for {target} ignores {ignored}"
    if target.namespace not in {"aten", "prims"}:
        return None
    if wrong := _wrong_results(node, str(target.overloadpacket)):
        return f"torch's ONNX for {target} has other results {wrong}"
    from trtcache.backends.onnx_export import (
        why_attention_not_exportable,  # imports sympy, which a hit of a file does not need
    )

    if why := why_attention_not_exportable(node):
        return why
    name, is_size = str(target), not isinstance(node.meta.get("val"), (torch.Tensor, list, tuple))
    if name in _EXPORTABLE or (torch.Tag.core in target.tags and name not in _NOT_EXPORTABLE) or is_size:
        return None
    return None if _is_exportable(target) else f"torch has no ONNX for {name}"


def _wrong_results(node: fx.Node, packet: str) -> str | None:
    """Return for what the ONNX of an operator has other results than torch; None if for nothing that is known."""
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    dtype = first.dtype if isinstance(first, torch.Tensor) else None
    match packet:
        case "aten.atan2":
            return "for zero and a negative number"
        case "aten.special_erfcx":
            return "for numbers above 9"
        case "aten._native_batch_norm_legit_functional" | "aten._native_batch_norm_legit" | "aten.native_batch_norm":
            # With running statistics, which the overload ``no_stats`` does not have.
            has_statistics = "no_stats" not in str(node.target) and node.args[3] is not None
            return "with training=True" if has_statistics and node.args[5] else None
        case "aten.copy":
            given, source = _argument_value(node, 0), _argument_value(node, 1)
            from trtcache.lowering.rewriting import same_sizes  # it imports sympy

            same = given is not None and source is not None and same_sizes(given.shape, source.shape)
            return None if same else "for tensors of several sizes"
        case "aten.angle":
            source = _argument_value(node, 0)
            return "for integers" if source is None or not source.dtype.is_floating_point else None
        case "aten.pow" if dtype in _INTEGERS and _argument_value(node, 1) is not None:
            return "for zero and a negative number"
        case "aten.__lshift__" | "aten.__rshift__" if dtype is torch.uint8:
            return "for uint8"
        case "aten.bitwise_left_shift" | "aten.bitwise_right_shift" if dtype is torch.uint8:
            return "for uint8"
        case _ if dtype in _INTEGERS and packet.startswith(_RESIZES) and "nearest" not in packet:
            return "for integers"
    return None


def _argument_value(node: fx.Node, place: int) -> torch.Tensor | None:
    """Return the fake value of a positional argument that is a tensor."""
    given: Any = node.args[place] if place < len(node.args) else None
    value = getattr(given, "meta", {}).get("val")
    return value if isinstance(value, torch.Tensor) else None


def _ignored_argument(node: fx.Node, target: torch._ops.OpOverload) -> str | None:
    """Return an argument that ``torch.onnx`` ignores although it changes the result, with its value; None without."""
    names = _IGNORED.get(str(target.overloadpacket))
    if names is None:
        return None
    schema = target._schema.arguments
    given = {one.name: one.default_value for one in schema if one.has_default_value()}
    given |= dict(zip((one.name for one in schema), node.args, strict=False)) | node.kwargs
    found = next((name for name in names if not _is_harmless(name, given)), None)
    return found and f"{found}={given[found]}"


def _is_harmless(name: str, given: Mapping[str, Any]) -> bool:
    if name == "input_scale":
        return bool(given[name] == 1)
    if name == "reduce":
        return bool(given[name] != "mean")  # written as a plain copy
    if name in ("quant_min", "quant_max"):  # written for the range of an integer dtype; torch rounds float8 to integers
        dtype: torch.dtype = given["dtype"]
        return not dtype.is_floating_point and given[name] == getattr(torch.iinfo(dtype), name.removeprefix("quant_"))
    return given[name] is None


@functools.cache
def _is_exportable(target: torch._ops.OpOverload) -> bool:
    from torch._decomp import decomposition_table

    composite = torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    return target in decomposition_table or bool(composite) or _onnx_registry()(target)


@functools.cache
def _onnx_registry() -> Callable[[torch._ops.OpOverload], bool]:
    """Return a function that returns whether an operator has an ONNX function; always True if unknown."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        from trtcache.backends.onnx_export import quiet_exporter

        with quiet_exporter():
            registry = ONNXRegistry.from_torchlib()
    except (ImportError, AttributeError):  # private to torch: the build will report what it cannot export
        return lambda _: True
    return registry.is_registered
