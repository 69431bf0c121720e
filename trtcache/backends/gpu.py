"""The GPU of this machine, and its driver."""

from __future__ import annotations

import ctypes

import torch

from trtcache.target import Gpu

_GIB = 1 << 30


def gpu_here() -> Gpu | None:
    """Return the current CUDA device, None if torch has none."""
    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    memory_gib = round(found.total_memory / _GIB)
    return Gpu(found.name, f"{found.major}.{found.minor}", found.multi_processor_count, memory_gib)


def driver_cuda(library: str = "libcuda.so.1") -> int | None:
    """Return the major version of CUDA that the NVIDIA driver supports, None without a driver."""
    found = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL(library).cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed else found.value // 1000
