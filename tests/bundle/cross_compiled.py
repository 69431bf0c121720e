"""Writes a program as ``torch_tensorrt.save`` does after cross-compiling, by its documented layout.

Its own builder needs Windows' libraries. The operator's arguments are those of
``torch_tensorrt/dynamo/runtime/meta_ops/register_meta_ops.py``; the engine is any bytes, in base64 or as a tensor of
bytes, and the metadata a pickle that ends the process when it is opened.
"""

from __future__ import annotations

import base64
import os
import pickle
from typing import TYPE_CHECKING, Any

import torch
from torch.export import Dim

if TYPE_CHECKING:
    from pathlib import Path

PLAN = b"ftrt" + bytes(range(256))
_TEXTS = (
    *("serialized_in_binding_names", "serialized_out_binding_names", "serialized_hardware_compatible"),
    *("serialized_metadata", "serialized_target_platform", "serialized_require_output_allocator"),
    *("serialized_resource_allocation_strategy", "serialized_requires_native_multidevice", "serialized_aliased_io"),
)


class _Ending:
    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (99,)


def _schema(engine: str) -> str:
    texts = ", ".join(f"str {name}" for name in _TEXTS)
    first = f"Tensor[] inputs, str abi_version, str name, str serialized_device_info, {engine} serialized_engine"
    return f"no_op_placeholder_for_execute_engine({first}, {texts}) -> Tensor[]"


class _CrossCompiled(torch.nn.Module):
    def __init__(self, *, as_tensor: bool) -> None:
        super().__init__()
        self.as_tensor = as_tensor
        self.register_buffer("engine", torch.frombuffer(bytearray(PLAN), dtype=torch.uint8), persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        metadata = base64.b64encode(pickle.dumps(_Ending())).decode()
        engine = self.engine if self.as_tensor else base64.b64encode(PLAN).decode()
        texts = ("x%y", "output0", "0", metadata, "windows_x86_64", "0", "0", "0", "")
        first = ("10", "_run_on_acc_0_engine", "0%8%9%0%NVIDIA L4")
        made = torch.ops.tensorrt.no_op_placeholder_for_execute_engine([x, y], *first, engine, *texts)
        return made[0] + 1


def write(path: Path, *, as_tensor: bool = False) -> None:
    """Write a program of one engine, with a batch that varies."""
    library = torch.library.Library("tensorrt", "FRAGMENT")
    library.define(_schema("Tensor" if as_tensor else "str"))
    try:
        torch.library.register_fake(
            "tensorrt::no_op_placeholder_for_execute_engine",
            lambda inputs, *_: [torch.empty_like(inputs[0])],
            lib=library,
        )
        batch = {0: Dim("batch", min=1, max=8)}
        args = torch.randn(3, 4), torch.randn(3, 4)
        program = torch.export.export(
            _CrossCompiled(as_tensor=as_tensor), args, dynamic_shapes={"x": batch, "y": batch}
        )
        torch.export.save(program, path)
    finally:
        library._destroy()
