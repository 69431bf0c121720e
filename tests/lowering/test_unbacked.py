"""Programs with sizes that are only known when they run: passes leave alone what they cannot decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional

from trtcache import lowering
from trtcache.errors import ExportError
from trtcache.lowering.capture import export

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

LAYERS: dict[str, nn.Module] = {
    "linear": nn.Linear(4, 4),
    "layer_norm": nn.LayerNorm(4),
    "batch_norm": nn.BatchNorm1d(4).eval(),
    "gelu": nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)),
}
EMBEDDING, ATTENTION = nn.Embedding(9, 4), nn.MultiheadAttention(4, 2, batch_first=True).eval()

# ``y`` has shape (unknown, 4), ``x`` has shape (dynamic, 4).
FUNCTIONS: dict[str, Function] = {
    **{name: lambda y, x, layer=layer: layer(y) for name, layer in LAYERS.items()},
    "add": lambda y, x: y + 1,
    "add_a_column": lambda y, x: y + y[:, :1],
    "add_a_row": lambda y, x: y + x[0],
    "add_layouts": lambda y, x: y.t() + y.t().contiguous(),
    "add_transposed": lambda y, x: (y.t() + 1) + (y.t() * 2),
    "any": lambda y, x: (y > 0).any(1),
    "arange": lambda y, x: torch.arange(y.shape[0]) + y[:, 0].long(),
    "attention": lambda y, x: ATTENTION(y[None], y[None], y[None])[0],
    "bmm": lambda y, x: torch.bmm(y[None], y.t()[None]),
    "cat_both": lambda y, x: torch.cat([y, x]),
    "cat_nested": lambda y, x: torch.cat([torch.cat([y, y], 1), y], 1),
    "chunk": lambda y, x: y.chunk(2, 1)[0] + y.chunk(2, 1)[1],
    "compare": lambda y, x: y[:, 0] > y[:, 1],
    "cumsum": lambda y, x: y.cumsum(0),
    "divide": lambda y, x: y / y.shape[0],
    "einsum": lambda y, x: torch.einsum("ij,kj->ik", y, x),
    "embedding": lambda y, x: EMBEDDING(y.long().clamp(0, 8)),
    "expand": lambda y, x: y[:, None].expand(-1, 3, -1) * 1,
    "flip": lambda y, x: y.flip(0),
    "full": lambda y, x: y.new_full((y.shape[0],), 3.0) + y[:, 0],
    "gather": lambda y, x: y.gather(1, torch.zeros_like(y).long()),
    "half": lambda y, x: y.half().float(),
    "index": lambda y, x: x[y[:, 0].long().clamp(0, 2)],
    "index_select": lambda y, x: x.index_select(0, y[:, 0].long().clamp(0, 2)),
    "interpolate": lambda y, x: functional.interpolate(y[None], scale_factor=2.0),
    "mask": lambda y, x: y.masked_fill(y > 1, 0.0),
    "matmul": lambda y, x: y @ x.t(),
    "max": lambda y, x: y.amax(1),
    "mean": lambda y, x: y.mean(),
    "multiply": lambda y, x: y * y.shape[0],
    "normalize": lambda y, x: functional.normalize(y, dim=1),
    "ones": lambda y, x: torch.ones_like(y) + y,
    "outer": lambda y, x: y[:, None] - y[None],
    "pad": lambda y, x: functional.pad(y, (1, 1)),
    "permute": lambda y, x: y[None].permute(2, 1, 0) * y[None].permute(2, 1, 0),
    "product": lambda y, x: y.prod(1),
    "repeat": lambda y, x: y.repeat(2, 3),
    "reshape": lambda y, x: y.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4),
    "roll": lambda y, x: y.roll(1, 1),
    "scatter": lambda y, x: torch.zeros_like(y).scatter(1, torch.zeros_like(y).long(), y),
    "select_again": lambda y, x: y[y[:, 0] > 0.2] + 1,
    "slice": lambda y, x: y[1:],
    "slice_steps": lambda y, x: y[::2],
    "softmax": lambda y, x: y.softmax(0),
    "sort": lambda y, x: y.sort(1)[0],
    "split": lambda y, x: y.split(2, 1)[1] * 1,
    "squeeze": lambda y, x: y[:, None].squeeze(1) + 1,
    "stack": lambda y, x: torch.stack([y, y]),
    "standardize": lambda y, x: (y - y.mean(0)) / (y.std(0) + 1),
    "tril": lambda y, x: torch.tril(y @ y.t()),
    "unbind": lambda y, x: y.unbind(1)[0],
    "where": lambda y, x: torch.where(y > 0.5, y, -y),
}


class Selected(nn.Module):
    """A function of the rows of ``x`` whose first element is positive."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x[x[:, 0] > 0], x)


class Counted(Selected):
    """A function of as many rows as an element of ``x`` says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = x[0, 0].abs().long().item()
        torch._check(count >= 2)
        torch._check(count <= 6)
        return self.function(torch.arange(count)[:, None] * x[0], x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Selected, Counted])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_passes_do_not_decide_on_unknown_sizes(kind: type[Selected], name: str) -> None:
    """Every program that torch exports is lowered; no pass raises."""
    x = torch.rand(6, 4) + 3.0
    try:
        program = export(kind(FUNCTIONS[name]), (x,), {}, ({0: torch.export.Dim.AUTO},))
    except ExportError as error:
        pytest.skip(f"torch cannot export it: {str(error)[:200]}")
    assert len(lowering.lower(program).interface.results) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["view", "unsqueeze"])
def test_sizes_beside_unknown_ones_are_computed(name: str) -> None:
    """A reshape that stays, for its unknown size, may need a node for another one."""
    functions: dict[str, Function] = {
        "view": lambda y, x: torch.cat([y, y], 1).view(-1),
        "unsqueeze": lambda y, x: torch.cat([y, y], 1)[:, None].contiguous(),
    }
    x = torch.rand(6, 4) + 3.0
    program = export(Selected(functions[name]), (x,), {}, ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},))
    assert len(lowering.lower(program).interface.results) == 1
