"""Operators that torch can export to ONNX.

``torch.onnx`` has functions for most operators and decomposes others. Importing them to find out takes seconds, and
every hit needs to know: so operators that certainly can be exported are recognised here.
"""

from __future__ import annotations

import functools
import logging
import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

# Core operators of torch with neither a function nor a decomposition (torch 2.13).
_NOT_SURE = frozenset(
    {
        *("aten._adaptive_avg_pool3d.default", "aten._cdist_forward.default", "aten._pdist_forward.default"),
        *("aten.randperm.default", "aten.avg_pool2d_backward.default", "aten.convolution_backward.default"),
        "aten._adaptive_avg_pool2d_backward.default",
    }
)
_SURE = frozenset({"aten.scaled_dot_product_attention.default", "aten.linear.default", "aten.baddbmm.default"})


def why_no_onnx(node: fx.Node) -> str | None:
    """Return why torch cannot export a node to ONNX, or None if it can."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in {"aten", "prims"}:
        return None
    name, is_size = str(target), not isinstance(node.meta.get("val"), (torch.Tensor, list, tuple))
    if name in _SURE or (torch.Tag.core in target.tags and name not in _NOT_SURE) or is_size:
        return None
    return None if _is_exportable(target) else f"torch has no ONNX for {name}"


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

        chatty = logging.getLogger("torch.onnx")
        level = chatty.level
        chatty.setLevel(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                registry = ONNXRegistry.from_torchlib()
        finally:
            chatty.setLevel(level)
    except (ImportError, AttributeError):  # private to torch: the build will report what it cannot export
        return lambda _: True
    return registry.is_registered
