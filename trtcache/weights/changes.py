"""Detect in-place changes of weights that an engine has copied.

torch counts them in ``_version``, but not all: fused optimizers (``AdamW(..., fused=True)``), the statistics of a
BatchNorm in training mode, and writes through ``.data`` or NumPy bypass the counter. So a small weight is compared by
value, which no write bypasses, and the steps of optimizers are counted for the others.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch._compile import _disable_dynamo
from torch.optim.optimizer import register_optimizer_step_post_hook

from trtcache.weights.slots import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

COMPARED_BYTES = 1 << 14
"""Weights in the memory of the CPU of at most this size are compared by value. The statistics and the affine parameters
of a BatchNorm with 4096 channels are of this size; 212 tensors of 2 KiB, as in a ResNet-50, take 20 us."""


class Snapshot:
    """The state of some tensors at one time.

    It keeps their memory alive: other tensors could reuse the address and the version of freed ones.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record the values of small tensors, and the version counters of the others."""
        count_optimizer_steps()
        # An alias that inference mode creates has a version counter of its own.
        with torch.inference_mode(False):
            self._tensors = [tensor.detach() for tensor in tensors]
        small = [tensor for tensor in self._tensors if _is_compared(tensor)]
        # Not numpy(): torch refuses to resize memory that was given to NumPy.
        self._memory = [(ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()) for tensor in small]
        self._values = b"".join(self._memory)
        self._counted = [tensor for tensor in self._tensors if not _is_compared(tensor)]
        self._versions = _versions(self._counted)

    def is_current(self) -> bool:
        """Return whether no tensor has been changed in place.

        The caller MUST have checked that the memory of each is where it was. A large inference tensor, which has no
        version counter, counts as changed.
        """
        return b"".join(self._memory) == self._values and _versions(self._counted) == self._versions


def _is_compared(tensor: torch.Tensor) -> bool:
    if not is_plain(tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    end = tensor.storage_offset() * tensor.itemsize + tensor.nbytes
    has_memory = end <= tensor.untyped_storage().nbytes()  # that of a weight can be freed
    return has_memory and tensor.nbytes <= COMPARED_BYTES and tensor.is_contiguous()


def _versions(tensors: Iterable[torch.Tensor]) -> list[object]:
    # A new object equals no other.
    return [object() if tensor.is_inference() else tensor._version for tensor in tensors]


@cache
def count_optimizer_steps() -> None:
    """Let each step of an optimizer of torch count as a change of its parameters, from now on.

    Fused optimizers do not count their changes (torch 2.13); the others do, and a change may be counted twice.
    """
    # If the step is compiled, Dynamo would trace the hook, and Inductor remove the call.
    register_optimizer_step_post_hook(_disable_dynamo(_count_step))


def _count_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG001  # torch's signature
    torch.autograd.graph.increment_version([one for group in optimizer.param_groups for one in group["params"]])
