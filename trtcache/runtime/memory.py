"""Memory overlap of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trtcache.weights.arrays import Spans, dense_strides

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


def find_overlap(changed: Collection[int], tensors: Mapping[int, torch.Tensor]) -> tuple[int, int] | None:
    """Return the keys of two tensors that overlap in memory, the first one of ``changed``; None if there are none.

    If both are of ``changed``, the smaller key is the first.
    Tensors are compared in address order, so that only neighbours are compared element by element.
    """
    spans = sorted((one.data_ptr(), one.data_ptr() + _extent(one), key) for key, one in tensors.items() if one.numel())
    open_spans: list[tuple[int, int]] = []
    for begin, end, key in spans:
        open_spans = [(until, other) for until, other in open_spans if until > begin]
        for _, other in open_spans:
            first, second = sorted((key, other), key=lambda one: (one not in changed, one))
            if first in changed and overlap(tensors[first], tensors[second]):
                return first, second
        open_spans.append((end, key))
    return None


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share an element's memory.

    Tensors with disjoint extents are ruled out first. Interleaved ones, as ``x[:, 0]`` and ``x[:, 1]``, are compared
    element by element.
    """
    if one.device != other.device or not (one.numel() and other.numel()):
        return False
    if one.data_ptr() > other.data_ptr():
        one, other = other, one
    if other.data_ptr() >= one.data_ptr() + _extent(one):
        return False
    if one.element_size() != other.element_size():
        return True
    return bool(torch.isin(_element_addresses(one), _element_addresses(other)).any())


class Memory:
    """The memory of tensors that stay the same from call to call, such as weights.

    Their addresses are compared at each search: ``share_memory_`` and ``resize_`` move a tensor's memory.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Remember tensors by name."""
        self._tensors = dict(tensors)
        self._spans: tuple[tuple[int, ...], Spans] = ((), Spans(()))

    def find_shared(self, leaves: Sequence[torch.Tensor], chosen: Iterable[int]) -> tuple[int, str] | None:
        """Return the index of one of the chosen leaves and the name of what it overlaps; None if all lie apart."""
        tensors = self._tensors.values()
        addresses = (*map(torch.Tensor.data_ptr, tensors),)
        known, spans = self._spans
        if known != addresses:
            spans = Spans((begin, begin + _extent(one)) for begin, one in zip(addresses, tensors, strict=True))
            self._spans = addresses, spans
        for leaf in chosen:
            other = leaves[leaf]
            begin = other.data_ptr()
            if spans.meet(begin, begin + _extent(other)):
                for name, one in self._tensors.items():
                    if overlap(other, one):
                        return leaf, name
        return None


def _extent(tensor: torch.Tensor) -> int:
    """Return the bytes from the start of the first element to the end of the last."""
    if tensor.is_contiguous():  # an empty one is
        return tensor.numel() * tensor.element_size()  # not nbytes, which Dynamo cannot trace
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _element_addresses(tensor: torch.Tensor) -> torch.Tensor:
    """Return the address of each element."""
    places = torch.full((1,), tensor.data_ptr(), device="cpu")
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places[:, None] + torch.arange(size, device="cpu") * (step * tensor.element_size())).flatten()
    return places


def has_layout(result: torch.Tensor, order: tuple[int, ...]) -> bool:
    """Return whether a result is dense with its dimensions in this order, outermost first."""
    if result.is_contiguous() and order == tuple(range(len(order))):
        return True
    return result.permute(order).is_contiguous()


def to_layout(result: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Return a copy of a result with its dimensions in this order in memory."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return result.permute(order).contiguous().permute(back)


def with_strides(result: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Return a result of this layout with its strides, which ``has_layout`` ignores in dimensions of size 1."""
    strides = dense_strides(tuple(result.shape), order)
    return result if result.stride() == strides else result.as_strided(result.shape, strides)
