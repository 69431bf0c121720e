"""Models for programs without torch, each with several of the things that a call of an engine can get wrong."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn.functional import one_hot

if TYPE_CHECKING:
    from collections.abc import Callable

FAST = {"inductor": {"cpp.vec_isa_ok": True, "aot_inductor.precompile_headers": True}}


class Nested(nn.Module):
    """Nested arguments and outputs, values, and outputs that share memory with inputs, weights and each other."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)
        for number in range(11):  # the names of that many constants are in another order as texts
            self.register_buffer(f"shift{number}", torch.full((4,), float(number)), persistent=False)

    def forward(self, x: torch.Tensor, d: dict[str, Any], n: int, *, flag: bool = True) -> Any:
        made = self.lin(x) * self.scale + n + d["b"][0]
        for number in range(11):
            made = torch.tanh(made + getattr(self, f"shift{number}"))
        out: dict[str, Any] = {"a": [made, (x, None, 3)], "z": OrderedDict(y=x * 2, w=self.lin.weight)}
        return out, (made, made.view(-1), x.view(-1)), d["s"] + 1, d["e"] * 2, 2.5, "text", flag


class Dtypes(nn.Module):
    """One operation for each dtype, one of them with a check of its own."""

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b, i8, i32, i64, h, bf, d, c = args
        return ~b, i8 + 1, i32 * 2, one_hot(i64, 5), h * 2, bf * 2, d + 1, c * c, c.imag


class Sizes(nn.Module):
    """Sizes that vary, in an attention, and results that are numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[Any, ...]:
        hidden = self.out(self.embed(ids))
        found = torch.softmax(hidden @ hidden.transpose(1, 2) + mask[:, None, :], -1) @ hidden
        return self.out(found), found.sum(1), torch.arange(ids.shape[1]), ids.shape[1] * 2


class Changing(nn.Module):
    """A buffer and an input that calls change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state.add_(x.sum(0))
        return self.norm(x) + state


class Folded(nn.Module):
    """Weights that are computed from several: a convolution with a BatchNorm, transposed and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)
        self.one, self.other = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.other.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(self.norm(self.conv(x))).relu())


class Copies(nn.Module):
    """Results that are copies of a weight and of a constant, some seen through views that Inductor does not copy."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turn", torch.polar(torch.ones(4), torch.arange(4.0)))
        self.constant = torch.polar(torch.ones(4), torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        copied = self.turn.clone()
        return torch.view_as_real(copied), copied.imag, torch.view_as_real(self.constant.clone()), x * 2


class Scaled(nn.Module):
    """An int that varies, as a number, as a size and as a result."""

    def forward(self, x: torch.Tensor, n: int) -> Any:
        return torch.softmax(x, -1) * n, torch.arange(n) + x.sum(), n * 2 + x.shape[0]


@dataclass(frozen=True)
class Subject:
    """A model with the calls of it; the first one is that of the compilation."""

    model: Callable[[], nn.Module]
    calls: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]
    shapes: Any = None
    settings: dict[str, Any] = field(default_factory=lambda: dict(FAST))


def subjects() -> dict[str, Subject]:
    """Return the models by name, with the same values each time."""
    torch.manual_seed(0)
    x, odd = torch.randn(3, 4), torch.randn(4, 3).t()
    more = {"b": [torch.ones(4)], "s": torch.tensor(2.0), "e": torch.empty(0, 3)}
    dtypes = (
        torch.tensor([True, False]),
        torch.arange(-3, 3, dtype=torch.int8),
        torch.arange(4, dtype=torch.int32).view(2, 2),
        torch.arange(5),
        torch.randn(4).half(),
        torch.randn(4).bfloat16(),
        torch.randn(2, 3, dtype=torch.float64),
        torch.randn(3, dtype=torch.complex64),
    )
    batch, size = Dim("batch", min=1, max=8), Dim("size", min=2, max=64)
    lengths = [(torch.randint(0, 50, one), torch.randn(one)) for one in ((2, 7), (5, 3), (8, 64), (1, 2))]
    wide = torch.randn(6, 8)[::2, ::2]
    return {
        "nested": Subject(Nested, (((x, more, 2), {"flag": True}), ((odd, more, 2), {}), ((wide, more, 2), {}))),
        "dtypes": Subject(Dtypes, ((dtypes, {}),)),
        "sizes": Subject(
            Sizes, tuple((one, {}) for one in lengths), {name: {0: batch, 1: size} for name in ("ids", "mask")}
        ),
        "changing": Subject(Changing, tuple(((torch.randn(3, 4), torch.zeros(4)), {}) for _ in range(3))),
        "scaled": Subject(
            Scaled,
            tuple(((torch.randn(size, 4), n), {}) for size, n in ((3, 5), (7, 9), (2, 3))),
            {"x": {0: Dim.DYNAMIC}, "n": Dim.DYNAMIC},
        ),
        "folded": Subject(lambda: Folded().eval(), (((torch.randn(2, 3, 8, 8),), {}),)),
    }
