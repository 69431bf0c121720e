"""The GPU that a plan runs on, as far as torch has to be asked about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager


class Place(Protocol):
    """Where inputs and outputs lie, and in what order work on them is done."""

    device: torch.device

    def entered(self) -> AbstractContextManager[Any]:
        """Return what makes this the current device."""
        ...

    def stream(self) -> Any:
        """Return the caller's stream."""
        ...

    def hold(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keep a tensor's memory until what the stream has been given is done, even if nobody else does."""
        ...


class CudaPlace:
    """A CUDA device."""

    def __init__(self, device: torch.device) -> None:
        """Take a model's GPU, or for a model on the CPU the current one."""
        self.device = device if device.type == "cuda" else torch.device("cuda", torch.cuda.current_device())

    def entered(self) -> AbstractContextManager[Any]:
        """Return what makes this the current device."""
        return torch.cuda.device(self.device)

    def stream(self) -> Any:
        """Return torch's current stream there."""
        return torch.cuda.current_stream(self.device)

    def hold(self, tensor: torch.Tensor, stream: Any) -> None:
        """Tell torch's allocator of the stream."""
        tensor.record_stream(stream)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Return a new tensor where TensorRT may be told of it: its addresses are multiples of 256, and none is null."""
    size = dtype.itemsize
    for one in shape:
        size *= one
    memory = torch.empty(size + 2 * _ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    start = -memory.data_ptr() % _ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).view(tuple(shape))


def placed(tensor: torch.Tensor, device: torch.device | str, *, private: bool) -> torch.Tensor:
    """Return a tensor on a device where TensorRT may be told of it: itself if it lies right and may be shared."""
    tensor = tensor.detach().to(device)
    if tensor.is_contiguous() and not private and tensor.numel() and tensor.data_ptr() % _ALIGNMENT_BYTES == 0:
        return tensor
    return empty(tensor.shape, tensor.dtype, device).copy_(tensor)


def address(tensor: torch.Tensor) -> int:
    """Return where a tensor lies; of one without elements, a place in its storage."""
    storage = tensor.untyped_storage().data_ptr()
    return tensor.data_ptr() or storage + -storage % _ALIGNMENT_BYTES


_ALIGNMENT_BYTES = 256  # NvInferRuntime.h, IExecutionContext::setTensorAddress
