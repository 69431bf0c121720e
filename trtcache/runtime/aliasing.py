"""Whether tensors share memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def shared(changed: Collection[int], tensors: Mapping[int, torch.Tensor]) -> tuple[int, int] | None:
    """Return two of these tensors, by their keys, that share memory, the first of them one of the ``changed``.

    They are gone through by address, so that only what lies side by side is compared.
    """
    spans = sorted((one.data_ptr(), one.data_ptr() + _extent(one), key) for key, one in tensors.items() if one.numel())
    met: list[tuple[int, int]] = []
    for begin, end, key in spans:
        met = [(until, other) for until, other in met if until > begin]
        for _, other in met:
            first, second = (key, other) if key in changed else (other, key)
            if first in changed and overlap(tensors[first], tensors[second]):
                return first, second
        met.append((end, key))
    return None


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether an element of one tensor lies in an element of the other.

    Tensors whose extents do not meet are told apart at once. Where they meet, as those of ``x[:, 0]`` and ``x[:, 1]``
    do, every element is looked at.
    """
    if one.device != other.device or not (one.numel() and other.numel()):
        return False
    if one.data_ptr() > other.data_ptr():
        one, other = other, one
    if other.data_ptr() >= one.data_ptr() + _extent(one):
        return False
    if one.element_size() != other.element_size():
        return True
    return bool(torch.isin(_places(one), _places(other)).any())


def _extent(tensor: torch.Tensor) -> int:
    """Return the bytes from the first element's begin to the last one's end."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """Return where each element begins in memory."""
    places = torch.full((1,), tensor.data_ptr())
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places[:, None] + torch.arange(size) * (step * tensor.element_size())).flatten()
    return places
