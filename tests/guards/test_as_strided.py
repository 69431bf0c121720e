"""``as_strided`` reads a tensor's memory: inside of it the answer is torch's, beyond it the call is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import trtcache
from tests.guards.cases import Calls, outcomes
from trtcache.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLE = torch.arange(8.0).reshape(4, 2)
VIEW = torch.arange(8.0)[2:]


class HoldsView(nn.Module):
    """A model with a view of a larger tensor, as an attribute, a buffer or a parameter."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        column = TABLE.clone()[:, 1]
        if kind == "buffer":
            self.register_buffer("column", column)
        else:
            self.column = nn.Parameter(column) if kind == "parameter" else column

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Read the memory of the view."""
        return x + self.column.as_strided((4,), (1,), 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone(memory_format=torch.contiguous_format).as_strided((4, 2), (1, 1)) + 1,
        lambda x: (x * 2)[2:].as_strided((3,), (2,)) + x.amax(),
        lambda x: (x + 1).as_strided((2, 2), (2, 1), 3) * 2,
        lambda x: torch.as_strided_copy(x * 2, (3,), (3,)),
        lambda x: torch.as_strided_scatter(x * 2, torch.ones(2), (2,), (4,)),
    ],
)
def test_inside_of_the_memory(function: Callable[..., Any], interpreter: str, tmp_path: Path) -> None:
    """A call whose sizes leave too little memory is refused, as torch raises."""
    model = Calls(function)
    module = trtcache.compile(
        model, (torch.rand(9),), dynamic_shapes=(({0: Dim.AUTO},),), backend=interpreter, cache=tmp_path
    )
    found = outcomes(module, model, [(torch.rand(size),) for size in (*range(10), 20)])
    assert found["right"] >= 3
    assert found["refused"] >= 3


def test_a_view_of_a_constant(interpreter: str, tmp_path: Path) -> None:
    """A constant's view keeps the memory of the whole constant."""
    model = Calls(lambda x: x + TABLE[:, 0].as_strided((4,), (1,), 0))
    module = trtcache.compile(model, (torch.zeros(4),), backend=interpreter, cache=tmp_path)
    assert module(torch.zeros(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "model",
    [Calls(lambda x: x + VIEW.as_strided((4,), (1,), 1)), *map(HoldsView, ("attribute", "buffer", "parameter"))],
)
def test_parts_of_a_larger_memory(model: nn.Module, interpreter: str, tmp_path: Path) -> None:
    """A weight or constant that is a part of a larger tensor is refused: an engine has a copy of the part."""
    with pytest.raises(ExportError, match=r"calls as_strided.*\.clone\(\)"):
        trtcache.compile(model, (torch.zeros(4),), backend=interpreter, cache=tmp_path)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.as_strided((2,), (3,), 0) * 2,
        lambda x: x[2:].view(-1, 1).as_strided((2,), (3,)) * 2,
        lambda x: x.split(4)[1].as_strided((2,), (1,)) * 2,
        lambda x: x.add_(1).float().as_strided((2,), (3,)) * 2,
        lambda x: torch.as_strided_copy(x, (3,), (3,)),
        lambda x: torch.as_strided_scatter(x, torch.ones(2), (2,), (4,)),
    ],
)
def test_of_an_input_it_is_refused(function: Callable[..., Any], interpreter: str, tmp_path: Path) -> None:
    """A call can give a view of a larger tensor, or one in another layout."""
    with pytest.raises(ExportError, match=r"as_strided on its input \w+, .*clone\(memory_format"):
        trtcache.compile(Calls(function), (torch.arange(8.0),), backend=interpreter, cache=tmp_path)


@pytest.mark.parametrize("offset", [None, 0, 1])
def test_of_a_copy_it_reads_the_copy(offset: int | None, interpreter: str, tmp_path: Path) -> None:
    """Whatever memory the input is in, also through a view of the copy."""

    def function(x: torch.Tensor) -> torch.Tensor:
        copy = x.clone(memory_format=torch.contiguous_format)
        return copy[1:].as_strided((2,), (3,), offset) * 2

    module = trtcache.compile(Calls(function), (torch.arange(8.0),), backend=interpreter, cache=tmp_path)
    base = torch.arange(100.0)
    for x in (base[:8], base[4:12], base[0:32:4], base[5].expand(8)):
        assert torch.equal(module(x), function(x))
