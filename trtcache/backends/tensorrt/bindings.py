"""Bindings of an engine: its inputs and outputs with names, dtypes and memory locations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from trtcache.errors import IncompatibleEngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class Binding:
    """One input or output of an engine.

    One that is ``on_host`` is read or written on the CPU, such as the sizes of a reshape; one with a ``source`` is an
    output that must share the memory of the input of that name.
    """

    name: str
    dtype: torch.dtype
    on_host: bool
    source: str | None = None


def dtypes_of(trt: Any) -> dict[Any, torch.dtype]:
    """Return torch's dtype for each of TensorRT's that an input or output can have."""
    kinds = trt.DataType
    return {
        kinds.FLOAT: torch.float32,
        kinds.HALF: torch.float16,
        kinds.BF16: torch.bfloat16,
        kinds.INT8: torch.int8,
        kinds.INT32: torch.int32,
        kinds.INT64: torch.int64,
        kinds.UINT8: torch.uint8,
        kinds.BOOL: torch.bool,
        kinds.FP8: torch.float8_e4m3fn,
    }


def binding_of(engine: Any, name: str, dtypes: Mapping[Any, torch.dtype], host: Any) -> Binding:
    """Describe one of an engine's inputs or outputs.

    Raises:
        IncompatibleEngineError: torch does not have its dtype.
    """
    dtype = dtypes.get(engine.get_tensor_dtype(name))
    if dtype is None:
        raise IncompatibleEngineError("plan", f"{name} is {engine.get_tensor_dtype(name)}, which torch does not have")
    return Binding(name, dtype, engine.get_tensor_location(name) == host, engine.get_aliased_input_tensor(name))


class DeviceContext(Protocol):
    """The device of a plan's inputs and outputs, and the stream of its calls."""

    device: torch.device

    def activate(self) -> AbstractContextManager[Any]:
        """Return a context manager that makes this the current device."""
        ...

    def stream(self) -> Any:
        """Return the caller's stream."""
        ...

    def hold(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keep a tensor's memory alive until the stream's pending work is done."""
        ...


class CudaDevice:
    """A CUDA device."""

    def __init__(self, device: torch.device) -> None:
        """Use the model's GPU, or the current one for a model on the CPU."""
        self.device = device if device.type == "cuda" else torch.device("cuda", torch.cuda.current_device())

    def activate(self) -> AbstractContextManager[Any]:
        """Return a context manager that makes this the current device."""
        return torch.cuda.device(self.device)

    def stream(self) -> Any:
        """Return torch's current stream of this device."""
        return torch.cuda.current_stream(self.device)

    def hold(self, tensor: torch.Tensor, stream: Any) -> None:
        """Record the stream in torch's allocator."""
        tensor.record_stream(stream)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Return a new tensor with an address that TensorRT accepts: a multiple of 256 and never null."""
    size = dtype.itemsize
    for size_ in shape:
        size *= size_
    memory = torch.empty(size + 2 * _ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    start = -memory.data_ptr() % _ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).view(tuple(shape))


def place_tensor(tensor: torch.Tensor, device: torch.device | str, *, private: bool) -> torch.Tensor:
    """Return a tensor on a device with an address that TensorRT accepts; itself if that holds and it may be shared."""
    tensor = tensor.detach().to(device)
    if tensor.is_contiguous() and not private and tensor.numel() and tensor.data_ptr() % _ALIGNMENT_BYTES == 0:
        return tensor
    return empty(tensor.shape, tensor.dtype, device).copy_(tensor)


def address(tensor: torch.Tensor) -> int:
    """Return a tensor's address; without elements, an aligned address in its storage."""
    storage = tensor.untyped_storage().data_ptr()
    return tensor.data_ptr() or storage + -storage % _ALIGNMENT_BYTES


_ALIGNMENT_BYTES = 256  # NvInferRuntime.h, IExecutionContext::setTensorAddress
