"""The weights of a model that engine weights were made of, as long as somebody else keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class WeakTensor:
    """A tensor's place in memory, which is not kept by it."""

    storage: StorageWeakRef
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> WeakTensor:
        """Note where a tensor lies."""
        made = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch's
        return cls(made, tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def tensor(self) -> torch.Tensor | None:
        """Return the tensor as it is now; None if its memory was given back."""
        storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        if storage is None:
            return None
        empty = torch.empty(0, dtype=self.dtype, device=storage.device)
        return empty.set_(storage, self.offset, self.shape, self.stride)


def weak_tensors(tensors: Mapping[int, torch.Tensor]) -> dict[int, WeakTensor]:
    """Note where tensors lie, by their numbers; one that is only seen through a sign or a conjugation is left out."""
    plain = {index: one for index, one in tensors.items() if not (one.is_conj() or one.is_neg())}
    return {index: WeakTensor.of(one) for index, one in plain.items() if one.layout == torch.strided}
