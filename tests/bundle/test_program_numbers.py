"""Programs that return numbers, exported and loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import trtcache

if TYPE_CHECKING:
    from pathlib import Path


class Numbers(nn.Module):
    """Sizes, and a number that is read from a tensor."""

    def forward(self, x: torch.Tensor) -> Any:
        return torch.softmax(x, -1) * 2, x.shape[0], {"twice": x.shape[0] * 2 + x.shape[1]}, x.argmax().item()


@pytest.mark.parametrize("settings", [{}, {"torch_executed_ops": ["aten.softmax.int"]}], ids=["whole", "divided"])
def test_a_program_that_returns_numbers_is_exported_and_loaded(
    engines: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """It answers as the model does for sizes of each call."""
    model, path = Numbers().eval(), tmp_path / "program.pt2"
    shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
    compiled = trtcache.compile(model, (torch.randn(3, 4),), dynamic_shapes=shapes, cache=engines, settings=settings)
    trtcache.export(compiled, path)
    loaded = trtcache.load(path, trust="local-file")
    for shape in ((3, 4), (7, 2), (5, 5)):
        x = torch.randn(shape)
        for module in (compiled, loaded):
            wanted, found = pytree.tree_flatten(model(x)), pytree.tree_flatten(module(x))
            assert found[1] == wanted[1]
            torch.testing.assert_close(found[0][0], wanted[0][0])
            assert found[0][1:] == wanted[0][1:]
            assert all(type(one) is int for one in found[0][1:])
