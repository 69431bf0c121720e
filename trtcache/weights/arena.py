"""One block of memory for the weights that are computed when an engine is loaded, in huge pages.

The kernel clears each page when it is first written to. In small pages that was most of the time to fold a ResNet-18's
BatchNorms (43 MB: 24 ms; in huge pages 8 ms, but about 100 ms where a virtual machine's host had not backed them yet).
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from trtcache.weights.slots import EngineWeight

HUGE_BYTES: Final = 2 << 20
_ALIGNED_BYTES = 64  # as torch's own allocator


class Arena:
    """Memory for new tensors on the CPU, which lives as long as one of them.

    Each tensor has a storage of its own, so that it is saved and compared without the others.
    """

    def __init__(self, size_bytes: int) -> None:
        """Reserve memory for tensors of this many bytes in all, as ``padded_bytes`` counts them."""
        self._memory = mmap.mmap(-1, size_bytes + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without huge pages
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._start = -torch.frombuffer(self._memory, dtype=torch.uint8).data_ptr() % HUGE_BYTES

    def empty(self, weight: EngineWeight) -> torch.Tensor:
        """Return a new tensor for an engine weight."""
        dtype, count = getattr(torch, weight.dtype), _extent(weight)
        flat = torch.frombuffer(self._memory, dtype=dtype, count=count, offset=self._start)
        self._start += padded_bytes(weight)
        return torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), 0, weight.shape, weight.stride)


def padded_bytes(weight: EngineWeight) -> int:
    """Return the bytes that an engine weight takes in an arena; 0 for one without elements, which takes no memory."""
    size_bytes: int = _extent(weight) * getattr(torch, weight.dtype).itemsize
    return -(-size_bytes // _ALIGNED_BYTES) * _ALIGNED_BYTES


def _extent(weight: EngineWeight) -> int:
    if 0 in weight.shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(weight.shape, weight.stride, strict=True))
