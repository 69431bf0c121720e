"""The GPU of this machine, and its driver."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from trtcache.target import Gpu

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_GIB = 1 << 30


def gpu_here(device: torch.device | None = None) -> Gpu | None:
    """Return a CUDA device, None if torch has none: ``device``, or the current one if it is on the CPU or None."""
    if not torch.cuda.is_available():
        return None
    index = device.index if device is not None and device.type == "cuda" else None
    found = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    memory_gib = round(found.total_memory / _GIB)
    return Gpu(found.name, f"{found.major}.{found.minor}", found.multi_processor_count, memory_gib)


def activate(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context manager that makes ``device`` the current CUDA device, if it is one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def driver_cuda(library: str = "libcuda.so.1") -> int | None:
    """Return the major version of CUDA that the NVIDIA driver supports, None without a driver."""
    found = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL(library).cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed else found.value // 1000
