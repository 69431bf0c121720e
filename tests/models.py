"""Small models, each with one thing in it that a compiler or a cache gets wrong, and calls of them."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Pair = namedtuple("Pair", "first second")  # as users write it
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Calls(nn.Module):
    """A module whose ``forward`` is a function of one linear layer and the arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.lin, *args, **kwargs)


class Keywords(nn.Module):
    """Every kind of parameter that a ``forward`` can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(
        self, x: torch.Tensor, y: torch.Tensor | None = None, *, scale: float = 2.0, flag: bool = False
    ) -> torch.Tensor:
        made = self.lin(x) * scale
        made = made if y is None else made + y
        return -made if flag else made


def nested_tensor() -> torch.Tensor:
    """Return a nested tensor of torch's first kind, without torch's warning that there is a second."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])


class Affine(nn.Module):
    """``x @ a + b`` and ``c``, all weights of one value: a mix of two sets of weights shows in the results."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.full((4, 4), value))
        self.b = nn.Parameter(torch.full((4,), value))
        self.c = nn.Parameter(torch.full((4,), value))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ self.a + self.b, self.c * 1


class Single(nn.Module):
    """Weights of one element, from which Inductor would compute while they have no values, and one of none."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0]))
        self.shift = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("past", torch.zeros(0, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x * self.scale.exp(), (1 + self.shift) * x + self.count, torch.cat((self.past, self.scale * x))


class Heads(nn.Module):
    """Attention in products, with as many heads as words: Inductor has patterns that take its order for another."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


class Weights(nn.Module):
    """A matrix in any layout, used by a product and by a sum."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("w", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.w).relu() + self.w.sum(0)


class Tied(nn.Module):
    """An embedding whose weight is also the output layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(index))


class Shared(nn.Module):
    """One layer under two names, and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = self.one
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x))


class ConvNorm(nn.Module):
    """A convolution and a BatchNorm with running statistics that are not the defaults."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.norm.running_mean.uniform_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).relu()


class Ones(nn.Module):
    """Weights of one value each, which a compiler that reads values folds away."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.ones(64, 64))
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("zero", torch.zeros(64))
        self.register_buffer("mask", torch.zeros(64, dtype=torch.bool))
        self.register_buffer("index", torch.zeros(3, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = (x + self.zero) * self.scale @ self.matrix + (self.matrix + 1).sum(0) * self.matrix[0]
        return made, torch.where(self.mask, x, x + 1), x[self.index]


class Constants(nn.Module):
    """Constants of each kind: a buffer that is in no state_dict, a slice of it, a plain tensor, a literal."""

    def __init__(self, start: float = 0.0, scale: float = 2.0) -> None:
        super().__init__()
        positions = torch.arange(8.0) + start
        self.register_buffer("positions", positions, persistent=False)
        self.register_buffer("some", positions[:4], persistent=False)
        self.register_buffer("turned", torch.tensor([1 + 2j, 3 - 1j, 0j, 1j]).conj(), persistent=False)
        self.register_buffer("none", torch.empty(0), persistent=False)
        self.scale = torch.tensor([scale, 3.0, 4.0, 5.0])
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = self.lin(x) * self.scale + self.positions[:4] * torch.tensor([1.0, 2.0, 3.0, 4.0])
        return made + self.some + self.positions.sin().sum(), (x * self.turned).imag, torch.cat([self.none, x[0]])


class Overlapping(nn.Module):
    """Weights that are views of one another."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 4))
        self.register_buffer("top", self.w.detach()[:4])
        self.register_buffer("turned", self.w.detach()[:4].t())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ self.w.t() + 1, x @ self.top, x @ self.turned


class BatchNorm(nn.Module):
    """A layer and a BatchNorm, whose running statistics change in train mode."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.lin(x))


class KeyValue(nn.Module):
    """A cache of keys and values that no state_dict has, and a count that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("kept", torch.zeros(8, 4), persistent=False)
        self.register_buffer("last", torch.zeros(3, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        made = self.lin(x)
        self.kept.index_copy_(0, position, made)
        self.last.copy_(made)
        self.count += 1
        return self.kept.sum(0) + self.kept[position]


class Changing(nn.Module):
    """Changes its inputs, as ``x.add_(1)`` does."""

    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        more["k"].mul_(2)
        return x * more["k"], x.sum()


class Random(nn.Module):
    """Draws random numbers in every way that changes from call to call."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dropped = nn.functional.dropout(x, 0.5, training=True)
        return (
            torch.rand(3),
            torch.rand(3),
            torch.randn_like(x),
            dropped,
            torch.randint(0, 99, (20,)),
            torch.randperm(9),
        )


class Branching(nn.Module):
    """Control flow that depends on values: torch.export refuses it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x


@dataclass(frozen=True)
class Case:
    """A model, a call to compile it with, and other calls that must work."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[Call, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every call, the one of the compilation first."""
        return ((self.args, dict(self.kwargs)), *self.others)


def layouts() -> dict[str, torch.Tensor]:
    """Return 3 by 4 tensors in every layout that a caller may come with."""
    big, pairs = torch.randn(6, 8), torch.randn(3, 4, dtype=torch.complex64)
    return {
        "contiguous": torch.randn(3, 4),
        "transposed": torch.randn(4, 3).t(),
        "strided": big[::2, ::2],
        "sliced": big[1:4, 2:6],
        "rows": torch.randn(1, 4).expand(3, 4),
        "columns": torch.randn(3, 1).expand(3, 4),
        "one": torch.randn(()).expand(3, 4),
        "negated": pairs.conj().imag,
        "parameter": nn.Parameter(torch.randn(3, 4)),
    }


def _no_grad(lin: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        made = lin(x)
    with torch.autocast("cpu", enabled=False):
        return made + made.float() * 2


def _integers(lin: nn.Module, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return i // 3, i % 3, i / 2, i**2, i << 1, (i > 2).any(), i.max(), i.argmax()


def cases() -> dict[str, Case]:
    """Return fresh models with fixed weights and inputs."""
    torch.manual_seed(0)
    x, c = torch.randn(3, 4), torch.randn(3, 4, dtype=torch.complex64)
    return {**_calls(x, c), **_modules(x)}


def _calls(x: torch.Tensor, c: torch.Tensor) -> dict[str, Case]:
    alike = [((other,), {}) for other in layouts().values()]
    return {
        "tuple": Case(Calls(lambda lin, x: (lin(x), x + 1)), (x,)),
        "nested": Case(Calls(lambda lin, x: {"a": [lin(x), (x, None, 3)], "b": OrderedDict(z=x * 2)}), (x,)),
        "model_output": Case(
            Calls(lambda lin, x: BaseModelOutput(last_hidden_state=lin(x), hidden_states=(x, x + 1))), (x,)
        ),
        "namedtuple": Case(Calls(lambda lin, p: Pair(lin(p.first), p.second + 1)), (Pair(x, x * 2),)),
        "constants_out": Case(Calls(lambda lin, x: (None, 7, 2.5, "s", True, lin(x))), (x,)),
        "mapping_in": Case(Calls(lambda lin, d: lin(d["a"]) + d["b"][0]), ({"a": x, "b": [x + 1, x]},)),
        "values_in": Case(Calls(lambda lin, x, n, s, b, z: lin(x) * n + (s == "q")), (x, 3, "q", True, None)),
        "keywords": Case(
            Keywords(),
            (x, x + 1),
            {"scale": 3.0},
            (((x,), {"y": x, "scale": 3.0}), ((), {"scale": 3.0, "y": x, "x": x + 2, "flag": False})),
        ),
        "defaults": Case(Keywords(), (x, None), {"scale": 2.0}, (((x,), {}), ((), {"x": x, "flag": False}))),
        "no_inputs": Case(Calls(lambda lin: lin.weight * 2)),
        "no_weights": Case(Calls(lambda lin, *args, **more: sum(args) * more["k"]), (x, x + 1), {"k": x}),
        "no_outputs": Case(Calls(lambda lin, x: ()), (x,)),
        "input_out": Case(Calls(lambda lin, x: (x, lin(x), x, x.view(-1))), (x,)),
        "weight_out": Case(Calls(lambda lin, x: (lin.weight, lin.weight.t(), lin(x), lin.bias)), (x,)),
        "twice_out": Case(Calls(lambda lin, x: (lambda y: (y, y, y.view(-1)))(lin(x))), (x,)),
        "empty": Case(
            Calls(lambda lin, x, y: (lin(x), torch.cat([y, y]))),
            (torch.randn(0, 4), torch.empty(0, 3, dtype=torch.int64)),
        ),
        "scalar": Case(Calls(lambda lin, x, s: (lin(x) * s, s + 1)), (x, torch.tensor(2.0))),
        "dtypes": Case(
            Calls(lambda lin, b, h, f, c: (~b, h + 1, f * 2, c * c)),
            (torch.tensor([True, False]), torch.randn(4).half(), torch.randn(4).bfloat16(), c[0]),
        ),
        "integers": Case(Calls(_integers), (torch.arange(-6, 6),)),
        "complex": Case(
            Calls(lambda lin, c: (c * 2 + 1, c.real)), (c,), {}, (((c.conj(),), {}), ((c.t().contiguous().t(),), {}))
        ),
        "layouts": Case(Calls(lambda lin, x: lin(x).relu().sum(1) + (x * 2 + 1).relu().sum(1)), (x,), {}, (*alike,)),
        "transposed": Case(Calls(lambda lin, x: lin(x) + x.sum(0)), (torch.randn(4, 3).t(),), {}, (*alike,)),
        "same_twice": Case(Calls(lambda lin, x, y: lin(x) + y.sum()), (x, x), {}, (((x, x + 1), {}),)),
        "unused_input": Case(Calls(lambda lin, x, y: lin(x)), (x, torch.ones(2)), {}, (((x, torch.zeros(2)), {}),)),
    }


def _modules(x: torch.Tensor) -> dict[str, Case]:
    return {
        "single": Case(Single(), (x,)),
        "heads": Case(Heads().eval(), (torch.randn(1, 3, 12),)),
        "gradient": Case(Calls(lambda lin, x: lin(x)), (x.clone().requires_grad_(),)),
        "no_grad": Case(Calls(_no_grad), (x,)),
        "tied": Case(Tied(), (torch.tensor([1, 2, 4]),)),
        "shared": Case(Shared(), (x,)),
        "conv_norm": Case(ConvNorm().eval(), (torch.randn(2, 3, 8, 8),)),
        "lstm": Case(nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True).eval(), (torch.randn(2, 3, 4),)),
        "attention": Case(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), (torch.randn(2, 3, 4),)),
        "ones": Case(Ones(), (torch.randn(5, 64),)),
        "constants": Case(Constants(), (x,)),
        "overlapping": Case(Overlapping(), (x,)),
        "weight_transposed": Case(Weights(torch.randn(6, 4).t()), (x,)),
        "weight_sliced": Case(Weights(torch.randn(10, 12)[1:5, 2:8]), (x,)),
        "weight_expanded": Case(Weights(torch.randn(4, 1).expand(4, 6)), (x,)),
        "in_bfloat16": Case(nn.Linear(4, 4).bfloat16(), (x.bfloat16(),)),
        "in_float64": Case(nn.Linear(4, 4).double(), (x.double(),)),
    }


class Together(nn.Module):
    """All cases as one program: one build instead of one for each."""

    def __init__(self, chosen: Mapping[str, Case]) -> None:
        super().__init__()
        self.cases = nn.ModuleDict({name: case.model for name, case in chosen.items()})

    def forward(self, calls: dict[str, Call]) -> dict[str, Any]:
        return {name: self.cases[name](*args, **kwargs) for name, (args, kwargs) in calls.items()}


def retrained(model: nn.Module) -> nn.Module:
    """Give every floating-point weight of a model other values, in place, and return it."""
    with torch.no_grad():
        for tensor in {tensor.data_ptr(): tensor for tensor in model.state_dict().values()}.values():
            if tensor.is_floating_point() and 0 not in tensor.stride():
                tensor.add_(torch.rand_like(tensor) * 0.5)
    return model
