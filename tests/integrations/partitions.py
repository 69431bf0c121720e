"""Partitions as torch_tensorrt makes them: flat graphs of ATen operators with the weights as attributes."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class Small(nn.Module):
    """Weights, an index, a scalar buffer, and an operator with a number in it."""

    def __init__(self, seed: int = 0, function: Callable[..., Any] | None = None) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.lin = nn.Linear(4, 3)
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.register_buffer("scale", torch.tensor(2.0))
        self.function = function or torch.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.function(self.lin(x))[:, self.order] * self.scale
        return out


def partition(model: nn.Module | None = None, *args: torch.Tensor, dynamic: Any = None) -> torch.fx.GraphModule:
    """Return a model as one partition; by default the small one, which is exported only once."""
    if model is None:
        return copy.deepcopy(_small(0))
    return _exported(model, args, dynamic)


def small(seed: int) -> torch.fx.GraphModule:
    """Return the small model with weights of a seed as one partition."""
    return copy.deepcopy(_small(seed))


@functools.cache
def _small(seed: int) -> torch.fx.GraphModule:
    return _exported(Small(seed), (), None)


def _exported(model: nn.Module, args: tuple[torch.Tensor, ...], dynamic: Any) -> torch.fx.GraphModule:
    exported = torch.export.export(model, args or (torch.zeros(2, 4),), dynamic_shapes=dynamic, strict=False)
    module = exported.run_decompositions().module(check_guards=False)
    assert isinstance(module, torch.fx.GraphModule)
    return module
