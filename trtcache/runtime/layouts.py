"""The layout of results: a caller's ``view`` of one must work as it does on the model's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def lies_in(result: torch.Tensor, order: tuple[int, ...]) -> bool:
    """Say whether a result fills its memory once with its dimensions in this order, from the outermost."""
    if result.is_contiguous() and order == tuple(range(len(order))):
        return True
    return result.permute(order).is_contiguous()


def laid_out(result: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Return a copy of a result with its dimensions in this order in memory."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return result.permute(order).contiguous().permute(back)
