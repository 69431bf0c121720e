"""What a compiled module returns that is no plain tensor: None, sizes, and numbers read from tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(*args, cache=engines, **{"backend": interpreter, **kwargs})

    return compile_


class Attention(nn.Module):
    """Multi-head attention by torch's fused operator, whose second output is None without weights."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(8, 24), nn.Linear(8, 8)
        self.need_weights = need_weights

    def forward(self, x: torch.Tensor) -> Any:
        weights = (self.inward.weight, self.inward.bias, self.outward.weight, self.outward.bias)
        return torch._native_multi_head_attention(x, x, x, 8, 2, *weights, need_weights=self.need_weights)


@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
def test_an_output_that_an_operator_gives_as_none_is_none(
    compiled: Callable[..., trtcache.CompiledModule], backend: str
) -> None:
    """Its fake implementation says an empty tensor."""
    model, x = Attention(need_weights=False).eval(), torch.randn(2, 3, 8)
    module = compiled(model, (x,), backend=backend)
    found, nothing = module(x)
    torch.testing.assert_close(found, model(x)[0])
    assert nothing is None
    traced = torch.export.export(module, (x,)).module()(x)
    assert traced[1] is None


def test_attention_weights_that_are_asked_for_are_returned(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The second output is a tensor then."""
    model, x = Attention(need_weights=True).eval(), torch.randn(2, 3, 8)
    torch.testing.assert_close(compiled(model, (x,))(x), model(x))
