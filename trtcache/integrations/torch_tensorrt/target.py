"""What an engine of torch_tensorrt is built to run on: the GPU by what it is, never by its number, and the platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trtcache.target import host_platform

if TYPE_CHECKING:
    from trtcache.digests import Json

_WINDOWS = "win32-amd64"
_MEMORY_STEP = 4 << 30  # what drivers leave of 80 GB differs by a few hundred MB between machines


def target_document(settings: Any) -> dict[str, Json]:
    """Return the part of the key document that the target is.

    An L4 and an RTX 4090 have one compute capability and want other kernels, so the product, the number of
    multiprocessors and the memory count too.
    """
    device = settings.device
    gpu = torch.cuda.get_device_properties(device.gpu_id)
    crosses = getattr(settings, "enable_cross_compile_for_windows", False)
    return {
        "platform": _WINDOWS if crosses else host_platform(),
        "product": str(gpu.name),
        "capability": f"{gpu.major}.{gpu.minor}",
        "multiprocessors": int(gpu.multi_processor_count),
        "memory_gib": memory_gib(int(gpu.total_memory)),
        "device_type": str(getattr(device.device_type, "name", device.device_type)),
        "dla_core": int(device.dla_core),
        "allow_gpu_fallback": bool(device.allow_gpu_fallback),
    }


def memory_gib(total_bytes: int) -> int:
    """Return a GPU's memory class: what it reports, rounded up to 4 GiB (79.1 GiB is 80)."""
    return -(-total_bytes // _MEMORY_STEP) * (_MEMORY_STEP >> 30)
