"""Weak references to the source weights of engine weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class WeakTensor:
    """A weak reference to a tensor: its storage, dtype and geometry."""

    storage: StorageWeakRef
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> WeakTensor:
        """Create a reference to a tensor."""
        storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch's
        return cls(storage, tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def tensor(self) -> torch.Tensor | None:
        """Return the tensor with its current values, or None if its storage was freed."""
        storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        if storage is None:
            return None
        empty = torch.empty(0, dtype=self.dtype, device=storage.device)
        return empty.set_(storage, self.offset, self.shape, self.stride)


def weak_tensors(tensors: Mapping[int, torch.Tensor]) -> dict[int, WeakTensor]:
    """Create references to tensors by index; skip conjugate, negative and non-strided views."""
    plain = {index: tensor for index, tensor in tensors.items() if not (tensor.is_conj() or tensor.is_neg())}
    return {index: WeakTensor.of(tensor) for index, tensor in plain.items() if tensor.layout == torch.strided}
