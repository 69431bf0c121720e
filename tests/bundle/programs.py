"""Models of every form that a program's file has to keep, and how their answers are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from tests.models import Affine, BatchNorm, Changing, Constants, ConvNorm, KeyValue, Tied, Together, cases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = (
    "(Tensor[] inputs, Tensor[] weights, str engine, str key, str weight_map, str input_spec, str output_spec)"
    " -> Tensor[]"
)


TOGETHER = (
    *("tuple", "nested", "namedtuple", "mapping_in", "values_in", "keywords", "no_inputs", "no_weights", "empty"),
    *("model_output", "input_out", "weight_out", "twice_out", "shared", "overlapping", "constants", "scalar", "dtypes"),
)
"""Cases of ``tests.models`` that are one program here."""


class Attention(nn.Module):
    """Sizes that vary, a softmax between products, and an output that no input is."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 8)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.out(self.embed(ids)) * self.scale
        found = torch.softmax(hidden @ hidden.transpose(1, 2) + mask[:, None, :], -1) @ hidden
        return self.out(found), found.sum(1), torch.arange(ids.shape[1])


class Picking(nn.Module):
    """A size that depends on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.relu() * 2)[x > 0].sum() + x.exp().sum()


class OnlyWeights(nn.Module):
    """Outputs that are a weight and an input, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"weight": self.weight, "input": x, "sum": x + self.weight}


@dataclass(frozen=True)
class Form:
    """A model with arguments, what stays in torch of it, and how many engines it then has."""

    model: Callable[[], nn.Module]
    args: tuple[Any, ...]
    engines: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shapes: Any = None
    others: tuple[tuple[Any, ...], ...] = ()


def _in_torch(*names: str) -> dict[str, Any]:
    return {"torch_executed_ops": [f"aten.{name}" for name in names]}


def _attention() -> dict[str, Form]:
    batch, size = Dim("batch", min=1, max=8), Dim("size", min=2, max=64)
    shapes = {"ids": {0: batch, 1: size}, "mask": {0: batch, 1: size}}
    calls = tuple((torch.randint(0, 50, one), torch.randn(one)) for one in ((2, 7), (5, 3), (8, 64)))
    ways = {"dynamic": (1, {}), "dynamic in parts": (3, _in_torch("softmax")), "alternating": (4, _in_torch("bmm"))}
    return {name: Form(Attention, calls[0], n, said, {}, shapes, calls) for name, (n, said) in ways.items()}


def forms() -> dict[str, Form]:
    """Return every form, with the same values each time."""
    torch.manual_seed(0)
    x, picture = torch.randn(3, 4), torch.randn(2, 3, 8, 8)
    changed = (x.clone(), {"k": torch.ones(3, 4)})
    written = (x, torch.tensor([0, 3, 5]))
    made = cases()
    chosen = {name: made[name] for name in TOGETHER}
    calls = {name: (case.args, dict(case.kwargs)) for name, case in chosen.items()}
    return {
        "single output": Form(lambda: nn.Linear(4, 4), (x,), 1),
        "many outputs": Form(Affine, (x,), 1),
        "output is a weight": Form(OnlyWeights, (x,), 1),
        "shared weight": Form(Tied, (torch.tensor([1, 2, 4]),), 1),
        "shared weight in torch": Form(Tied, (torch.tensor([1, 2, 4]),), 1, _in_torch("mm")),
        "buffer changed": Form(lambda: BatchNorm().train(), (x,), 1),
        "buffer changed in parts": Form(lambda: BatchNorm().train(), (x,), 2, _in_torch("addmm")),
        "no state_dict has it": Form(KeyValue, written, 1),
        "no state_dict has it, in parts": Form(KeyValue, written, 2, _in_torch("addmm")),
        "input changed": Form(Changing, changed, 1),
        "input changed in parts": Form(Changing, changed, 1, _in_torch("sum")),
        "recipes": Form(lambda: ConvNorm().eval(), (picture,), 1),
        "recipes in torch": Form(lambda: ConvNorm().eval(), (picture,), 1, _in_torch("conv2d")),
        "constants in torch": Form(Constants, (x,), 3, _in_torch("mul", "add")),
        "no engine": Form(lambda: nn.Linear(4, 4), (x,), 0, _in_torch("linear")),
        "sizes of values": Form(Picking, (x,), 2, _in_torch("exp")),
        **_attention(),
        "every structure": Form(lambda: Together(chosen), (calls,), 1),
        "every structure, in parts": Form(lambda: Together(chosen), (calls,), 19, _in_torch("addmm")),
    }


def leaves(*values: Any) -> list[Any]:
    """Return all tensors and numbers of what a call gave."""
    return pytree.tree_leaves(values)


def same(one: Any, other: Any) -> bool:
    """Say whether two answers have the same structure and the same bits."""
    mine, theirs = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return mine[1] == theirs[1] and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(mine[0], theirs[0], strict=True)
    )
