"""Example inputs, and weights that differ from one seed to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, TOKENS, VOCABULARY = 2, 8, 60

Call = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]
"""A model with the example arguments of a call."""


def create(make: Callable[[], Call], seed: int) -> Call:
    """Create a model in evaluation mode with the weights of a seed, and its example inputs.

    All weights differ between two seeds: libraries initialize many of them to 0 or 1, and a refit that left those out
    would go unnoticed.
    """
    torch.manual_seed(seed)
    model, args, kwargs = make()
    model = model.eval().requires_grad_(False)
    noise = torch.Generator().manual_seed(1000 + seed)
    for name, tensor in _weights(model).items():
        if not tensor.is_floating_point():
            continue
        random = torch.rand(tensor.shape, generator=noise).to(tensor.dtype)
        if name.endswith("running_var"):
            tensor.copy_(0.75 + 0.5 * random)
        else:
            tensor.add_(0.04 * (random - 0.5))
    return model, args, kwargs


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and BatchNorm's statistics: other buffers are often tables computed from the configuration."""
    statistics = ("running_mean", "running_var")
    buffers = {name: buffer for name, buffer in model.named_buffers() if name.endswith(statistics)}
    return {**dict(model.named_parameters()), **buffers}


def ids(tokens: int = TOKENS, *, low: int = 3, high: int = VOCABULARY) -> torch.Tensor:
    """Return random token ids without the usual special ones, of shape (batch, tokens)."""
    return torch.randint(low, high, (BATCH, tokens), generator=torch.Generator().manual_seed(5))


def floats(*shape: int) -> torch.Tensor:
    """Return random numbers of a shape without its batch dimension."""
    return torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(6))


def image(size: int = 32, channels: int = 3) -> torch.Tensor:
    """Return random square images."""
    return floats(channels, size, size)
