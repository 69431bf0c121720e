"""What a constant is: its bytes, by digest, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trtcache.digests import Digest
from trtcache.weights.slots import contiguous, dtype_name


@dataclass(frozen=True, slots=True)
class Content:
    """What a constant is: the digest of its bytes, and how they are read."""

    digest: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Content:
        """Return the content of a tensor, whatever its layout and device."""
        flat = laid_out(tensor).as_strided((tensor.numel(),), (1,))
        data = flat.view(torch.uint8).cpu().numpy().data if flat.numel() else b""
        return cls(str(Digest.of(data)), dtype_name(tensor.dtype), tuple(tensor.shape))


def laid_out(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's values, contiguous and plain: itself where it is so.

    torch calls a tensor contiguous whatever its strides in dimensions of size 1 are; here they are those that a stored
    constant is read with.
    """
    # A fake tensor takes 30 microseconds for each of these calls, and 300 for the first in a process.
    plain = tensor.detach() if tensor.requires_grad else tensor
    plain = plain.resolve_conj() if plain.is_conj() else plain
    plain = plain.resolve_neg() if plain.is_neg() else plain
    plain = plain if plain.is_contiguous() else plain.contiguous()
    stride = contiguous(tuple(plain.shape))
    return plain if plain.stride() == stride else plain.as_strided(plain.shape, stride)
