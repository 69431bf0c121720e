"""Parts of the keys of programs without guards, as they were before there were any.

``python -m tests.guards.keys_of_before > tests/guards/keys_of_before.json`` in a checkout of that time wrote them.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from trtcache.digests import CacheKey, encode, hash_bytes
from trtcache.frontends.resolve import resolve
from trtcache.frontends.source import CompileOptions

PARTS = ("graph", "inputs", "values", "structure", "layouts", "sizes", "pipeline")


class Scaled(nn.Module):
    """Two linear layers, a norm, and a factor that is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        """Return the product."""
        result: torch.Tensor = self.second(torch.relu(self.norm(self.first(x)))) * factor
        return result


class Attention(nn.Module):
    """Attention with sizes in masks and reshapes."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the attended values."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mask = torch.arange(length)[:, None] >= torch.arange(length)[None]
        found = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        result: torch.Tensor = self.out(found.transpose(1, 2).reshape(batch, length, 8))
        return result


class Pair(nn.Module):
    """Two inputs in a dictionary, with a dimension in common."""

    def forward(self, given: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a sum and a product."""
        return given["x"].sum(0) + given["y"].sum(0), given["x"] @ given["y"].t()


class Counting(nn.Module):
    """A number that is read from a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what is positive."""
        return (x > 0).nonzero()


def _convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(2)).eval()


_BATCH, _LENGTH = Dim("batch", min=1, max=64), Dim("length", min=2, max=512)
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "static": (Scaled, (torch.ones(3, 8),), None),
    "static with a number": (Scaled, (torch.ones(3, 8), 3.0), None),
    "named batch": (Scaled, (torch.ones(3, 8),), {"x": {0: _BATCH}}),
    "dynamic batch": (Scaled, (torch.ones(3, 8),), {"x": {0: Dim.DYNAMIC}}),
    "attention": (Attention, (torch.ones(2, 5, 8),), None),
    "attention, named": (Attention, (torch.ones(2, 5, 8),), {"x": {0: _BATCH, 1: _LENGTH}}),
    "attention, dynamic": (Attention, (torch.ones(2, 5, 8),), {"x": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}}),
    "convolution": (_convolution, (torch.ones(2, 3, 8, 8),), None),
    "convolution, batch": (_convolution, (torch.ones(2, 3, 8, 8),), ({0: Dim.AUTO},)),
    "derived": (
        Pair,
        ({"x": torch.ones(4, 6), "y": torch.ones(8, 6)},),
        {"given": {"x": {0: _LENGTH}, "y": {0: 2 * _LENGTH}}},
    ),
    "counting": (Counting, (torch.ones(4, 4),), None),
}


def parts_of(name: str) -> dict[str, str]:
    """Return the digests of the parts of a program's key."""
    model, args, shapes = PROGRAMS[name]
    request = resolve(model(), args, None, shapes).request(CompileOptions("aot_inductor"))
    assert isinstance(request.key, CacheKey), request.key
    parts: Any = request.key.document["parts"]
    return {part: hash_bytes(encode(value)).hex() for part, value in parts.items()}


if __name__ == "__main__":
    keys = {name: {part: parts_of(name)[part] for part in PARTS} for name in PROGRAMS}
    print(json.dumps({"torch": torch.__version__, "keys": keys}, indent=1))  # noqa: T201  # its output
