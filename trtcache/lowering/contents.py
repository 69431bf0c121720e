"""The content of a constant: the digest of its bytes, and how to read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trtcache.digests import Digest
from trtcache.weights.slots import contiguous, dtype_name


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a constant: the digest of its bytes, and how to read them."""

    digest: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Content:
        """Return the content of a tensor, regardless of its layout and device."""
        flat = make_contiguous(tensor).as_strided((tensor.numel(),), (1,))
        data = flat.view(torch.uint8).cpu().numpy().data if flat.numel() else b""
        return cls(str(Digest.of(data)), dtype_name(tensor.dtype), tuple(tensor.shape))


def make_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's values, contiguous and without lazy conjugation; itself if it is already.

    torch calls a tensor contiguous regardless of its strides in dimensions of size 1; here these are normalised to
    those that a stored constant is read with.
    """
    # For a fake tensor each of these calls takes 30 us, and the first one in a process 300 us.
    plain = tensor.detach() if tensor.requires_grad else tensor
    plain = plain.resolve_conj() if plain.is_conj() else plain
    plain = plain.resolve_neg() if plain.is_neg() else plain
    plain = plain if plain.is_contiguous() else plain.contiguous()
    stride = contiguous(tuple(plain.shape))
    return plain if plain.stride() == stride else plain.as_strided(plain.shape, stride)
