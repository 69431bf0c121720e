"""Equal pairs: tensors put together, and made of one number, in two ways."""

from __future__ import annotations

import torch
from torch.export import Dim

from tests.keys.pairs.pair import Pair, pair

_SQUARE = (4, 4)


def pairs() -> list[Pair]:
    """Return all of them."""
    batch = {"args": ({0: Dim("batch", min=2, max=8)},)}
    return [
        pair(
            "stack and cat of unsqueezed",
            lambda x, y: torch.stack([x, y.sin()], 1).cos(),
            lambda x, y: torch.cat([x[:, None], y.sin().unsqueeze(1)], 1).cos(),
            _SQUARE,
            _SQUARE,
        ),
        pair(
            "dynamic stack",
            lambda x: torch.stack([x, x.sin()], 1),
            lambda x: torch.cat([x[:, None], x.sin()[:, None]], 1),
            _SQUARE,
            dynamic=batch,
        ),
        pair(
            "cat of cat",
            lambda x, y: torch.cat([torch.cat([x, y], -1), x.sin()], 1),
            lambda x, y: torch.cat([x, y, x.sin()], 1),
            _SQUARE,
            _SQUARE,
        ),
        pair(
            "zeros of a symbolic size",
            lambda x: torch.zeros_like(x).cos() + x,
            lambda x: torch.zeros(x.shape).cos() + x,
            _SQUARE,
            dynamic=batch,
        ),
        pair("no number", lambda x: torch.where(x != x, 0.0, x), lambda x: torch.where(x.isnan(), 0.0, x), _SQUARE),
    ]
