"""Models that are run in parts, and what tests ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export import Dim

import trtcache
from tests.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.partition.division import PartitionedProgram

BATCH = Dim("batch", min=2, max=9)
SOFTMAX = {"torch_executed_ops": ["aten.softmax.int"]}


@torch.library.custom_op("trtcache_parts::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor twice: an operator that no backend knows."""
    return x * 2


@double.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("trtcache_parts::fill", mutates_args=("x",))
def fill(x: torch.Tensor, value: float) -> None:
    """Fill a tensor: an operator with an effect."""
    x.fill_(value)


class Attention(nn.Module):
    """Attention by hand, with a mask that is used after the cut and a residual around it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.out = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) + mask[:, None, :]
        made: torch.Tensor = self.out(torch.softmax(scores, -1) @ x).relu()
        return (made + x).reshape(-1, 8)


class Twice(nn.Module):
    """A custom operator between two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.second(double(self.first(x).relu())).tanh()
        return made


class Towers(nn.Module):
    """Equal towers with other weights, each with an input of its own, whose results meet."""

    def __init__(self, count: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(count))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([tower(one) for tower, one in zip(self.towers, inputs, strict=True)], -1)


def inputs(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs of ``Attention``."""
    return torch.randn(batch, 5, 8), torch.randn(batch, 5)


def dynamic() -> dict[str, Any]:
    """Return the sizes of ``Attention`` that vary."""
    return {"x": {0: BATCH}, "mask": {0: BATCH}}


def division(
    model: nn.Module, args: tuple[Any, ...], backend: str, settings: Mapping[str, Any], **more: Any
) -> PartitionedProgram:
    """Return how a model is divided."""
    return prepare(model, args, backend=backend, settings=trtcache.Settings.of(settings), **more).division


def kinds(found: PartitionedProgram) -> list[str]:
    """Return ``engine`` or ``torch`` for each part, in order."""
    return ["engine" if place in found.engines else "torch" for place in range(len(found.parts))]
