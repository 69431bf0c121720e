"""Equal pairs: programs that mean the same, written in two ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

from tests.keys.pairs.pair import Of, Pair, Program, pair

if TYPE_CHECKING:
    from collections.abc import Callable

_SQUARE = (4, 4)
_IMAGE = (2, 3, 8, 8)
_LINEAR = {"w": (5, 4), "b": (5,)}


class Named(nn.Module):
    """Two layers under names that somebody chose, registered in one order or the other."""

    def __init__(self, first: str, second: str, *, crossed: bool = False) -> None:
        super().__init__()
        layers = {first: nn.Linear(4, 4), second: nn.Linear(4, 4)}
        for name in reversed(layers) if crossed else layers:
            self.add_module(name, layers[name])
        self.names = (first, second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = (getattr(self, name) for name in self.names)
        return second(first(x).relu())


def _in_place(x: torch.Tensor) -> torch.Tensor:
    made = x * 2
    made.relu_().add_(1)
    made[0].mul_(3)
    return made


def _out_of_place(x: torch.Tensor) -> torch.Tensor:
    made = (x * 2).relu() + 1
    return made.select_scatter(made[0] * 3, 0, 0)


def writing() -> list[Pair]:
    """Names, order of statements, dead code, repeated code and calls."""

    def dead(x: torch.Tensor) -> torch.Tensor:
        _ = (x.cos() + 3).sum(0)
        return x.sin()

    def ordered(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = x.sin()
        b = y.cos()
        return a - b

    def reordered(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        b = y.cos()
        a = x.sin()
        return a - b

    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._assert(x.shape[0] == 4, "four")
        torch._check(x.dim() == 2)
        if x.shape[1] != 4:
            raise ValueError(x.shape)
        return x.sin()

    def unpacked(x: torch.Tensor) -> torch.Tensor:
        made = {"a": (x.sin(), [x.cos()])}
        return made["a"][1][0]

    return [
        pair("names of modules", Program(lambda: Named("a", "b")), Program(lambda: Named("z", "c")), _SQUARE),
        pair(
            "order of registration",
            Program(lambda: Named("a", "b")),
            Program(lambda: Named("a", "b", crossed=True)),
            _SQUARE,
        ),
        pair(
            "depth of modules",
            Program(lambda: nn.Linear(4, 4)),
            Program(lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4)))),
            _SQUARE,
        ),
        pair("dead code", lambda x: x.sin(), dead, _SQUARE),
        pair("order of statements", ordered, reordered, _SQUARE, _SQUARE),
        pair("common subexpression", lambda x: (y := x.sin()) * y, lambda x: x.sin() * x.sin(), _SQUARE),
        pair("in place", _in_place, _out_of_place, _SQUARE),
        pair("assertions", lambda x: x.sin(), checked, _SQUARE),
        pair("tuples", lambda x: x.cos(), unpacked, _SQUARE),
        pair("no gradients", lambda x: x.sin(), torch.no_grad()(lambda x: x.sin()), _SQUARE),
        pair("detached", lambda x: x.sin() * 2, lambda x: x.sin().detach() * 2, _SQUARE),
        pair(
            "operator and method", lambda x, y: x * y - x, lambda x, y: torch.sub(torch.mul(x, y), x), _SQUARE, _SQUARE
        ),
        pair("reversed subtraction", lambda x: 1 - x, lambda x: torch.rsub(x, 1), _SQUARE),
        pair("square", lambda x: x**2, torch.square, _SQUARE),
        pair("relu", F.relu, torch.relu, _SQUARE),
    ]


def defaults() -> list[Pair]:
    """Arguments left out, counted from the other end, or in another form."""
    heads = ((1, 2, 6, 4),) * 3
    attention = F.scaled_dot_product_attention
    kernel = {"k": (4, 3, 3, 3)}
    return [
        pair("negative dim", lambda x: x.softmax(-1), lambda x: x.softmax(1), _SQUARE),
        pair("negative dim of a sum", lambda x: x.sum(-1), lambda x: x.sum(dim=(1,)), _SQUARE),
        pair("negative dim of a cat", lambda x: torch.cat([x, x * 2], -1), lambda x: torch.cat([x, x * 2], 1), _SQUARE),
        pair("negative dims of a gather", lambda x: x.sort(-1)[0], lambda x: x.sort(1)[0], _SQUARE),
        pair("negative end of a slice", lambda x: x[1:-1].sin(), lambda x: x[1:3].sin(), _SQUARE),
        pair("end beyond the size", lambda x: x[1:99].sin(), lambda x: x[1:].sin(), _SQUARE),
        pair("negative place", lambda x: x[-1].sin(), lambda x: x[3].sin(), _SQUARE),
        pair("kept dim", lambda x: x.mean(-1), lambda x: x.mean(dim=-1, keepdim=False), _SQUARE),
        pair("alpha", lambda x, y: x + y, lambda x, y: torch.add(x, other=y, alpha=1), _SQUARE, _SQUARE),
        pair(
            "stride of a convolution",
            lambda w, x: F.conv2d(x, w.k),
            lambda w, x: F.conv2d(x, w.k, None, (1, 1), [0, 0], 1, 1),
            _IMAGE,
            weights=kernel,
        ),
        pair(
            "stride of a pool", lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, (2, 2), stride=[2, 2]), _IMAGE
        ),
        pair("averages", lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, (2, 2), 2, 0), _IMAGE),
        pair(
            "scale of attention",
            lambda q, k, v: attention(q, k, v),
            lambda q, k, v: attention(q, k, v, scale=4**-0.5),
            *heads,
        ),
        pair("eps", lambda x: F.layer_norm(x, (4,)), lambda x: F.layer_norm(x, [4], eps=1e-5), _SQUARE),
        pair("softmax by name", lambda x: F.softmax(x, dim=0), lambda x: torch.softmax(x, 0), _SQUARE),
        pair(
            "padding row",
            lambda w, i: F.embedding(i, w.t),
            lambda w, i: F.embedding(i, w.t, padding_idx=1),
            torch.tensor([1, 2]),
            weights={"t": (4, 4)},
        ),
    ]


def copies() -> list[Pair]:
    """What returns what it was given."""

    def against(name: str, other: Callable[[torch.Tensor], torch.Tensor]) -> Pair:
        return pair(f"copy: {name}", lambda x: x.sin().cos(), lambda x: other(x.sin()).cos(), _SQUARE)

    return [
        against("clone", lambda x: x.clone()),
        against("contiguous", lambda x: x.contiguous()),
        pair("copy: of a transpose", lambda x: x.t().sum(1), lambda x: x.t().contiguous().sum(1), _SQUARE),
        against("cast to the same dtype", lambda x: x.to(torch.float32)),
        against("cast to the same device", lambda x: x.to("cpu", copy=True)),
        against("wider and back", lambda x: x.double().float()),
        against("dropout", lambda x: F.dropout(x, training=False)),
        against("alias", lambda x: torch.ops.aten.alias(x)),
        against("detach", lambda x: x.detach()),
        against("expand", lambda x: x.expand(4, 4)),
        against("expand by -1", lambda x: x.expand(-1, -1)),
        against("full slice", lambda x: x[:, :]),
        against("cat of one", lambda x: torch.cat([x])),
        against("repeat once", lambda x: x.repeat(1, 1)),
        against("tile once", lambda x: x.tile(1)),
        against("pad by nothing", lambda x: F.pad(x, (0, 0))),
        against("identity", nn.Identity()),
        against("flatten of a matrix", lambda x: x.reshape(4, 4)),
        against("squeeze", lambda x: x.unsqueeze(0).squeeze(0)),
        against("double transpose", lambda x: x.t().t()),
        against("permute of nothing", lambda x: x.permute(0, 1)),
        against("chunks together", lambda x: x.split(4)[0]),
    ]


def shapes() -> list[Pair]:
    """One change of shape, in several words."""
    x, dynamic = (2, 3, 4), {"args": ({0: Dim("batch", min=2, max=8)},)}
    return [
        pair("view chain", lambda x: x.view(6, 4).view(24).view(2, 12).sin(), lambda x: x.view(2, 12).sin(), x),
        pair("reshape and view", lambda x: x.reshape(6, 4).sin(), lambda x: x.view(-1, 4).sin(), x),
        pair("flatten", lambda x: x.flatten(1).sin(), lambda x: x.reshape(2, 12).sin(), x),
        pair("unsqueeze", lambda x: x.unsqueeze(1).sin(), lambda x: x[:, None].sin(), x),
        pair("unsqueeze and reshape", lambda x: x.unsqueeze(1).sin(), lambda x: x.reshape(2, 1, 3, 4).sin(), x),
        pair("transpose and permute", lambda x: x.transpose(1, 2).sin(), lambda x: x.permute(0, 2, 1).sin(), x),
        pair("negative transpose", lambda x: x.transpose(-1, -2).sin(), lambda x: x.mT.sin(), x),
        pair(
            "permute chain", lambda x: x.permute(2, 0, 1).permute(2, 0, 1).sin(), lambda x: x.permute(1, 2, 0).sin(), x
        ),
        pair("move a dim", lambda x: x.movedim(0, -1).sin(), lambda x: x.permute(1, 2, 0).sin(), x),
        pair("chunk and split", lambda x: x.chunk(2, 2)[1].sin(), lambda x: x.split(2, 2)[1].sin(), x),
        pair("split and slice", lambda x: x.split(2, 2)[1].sin(), lambda x: x[..., 2:].sin(), x),
        pair("tile and repeat", lambda x: x.tile(2).sin(), lambda x: x.repeat(1, 1, 2).sin(), x),
        pair("expand before a sum", lambda x, y: x + y.expand(2, 3, 4), lambda x, y: x + y, x, (4,)),
        pair("expand as", lambda x, y: x * y[None].expand_as(x), lambda x, y: x * y, x, (3, 4)),
        pair(
            "dynamic flatten",
            lambda x: x.flatten(1).sin(),
            lambda x: x.reshape(x.shape[0], -1).sin(),
            x,
            dynamic=dynamic,
        ),
        pair(
            "dynamic view chain",
            lambda x: x.reshape(-1, 4).reshape(-1, 12).sin(),
            lambda x: x.reshape(x.size(0), 12).sin(),
            x,
            dynamic=dynamic,
        ),
        pair(
            "names of sizes",
            *(Program(nn.ReLU, (x,), {"input": {0: Dim(name, min=2, max=8)}}) for name in ("batch", "n")),
        ),
        pair("bool and number", lambda x: x.masked_fill(x > 0, 0.0), lambda x: x.masked_fill(x > 0, 0), x),
    ]


def linear() -> list[Pair]:
    """Products with a weight and a bias."""

    def against(name: str, other: Callable[..., torch.Tensor], *shape: int) -> Pair:
        return pair(f"linear: {name}", lambda w, x: F.linear(x, w.w, w.b), other, shape or (3, 4), weights=_LINEAR)

    return [
        against("matmul and add", lambda w, x: x @ w.w.t() + w.b),
        against("bias first", lambda w, x: w.b + x @ w.w.t()),
        against("addmm", lambda w, x: torch.addmm(w.b, x, w.w.t())),
        against("einsum", lambda w, x: torch.einsum("bi,oi->bo", x, w.w) + w.b),
        against("matmul and add, 3-d", lambda w, x: x @ w.w.t() + w.b, 2, 3, 4),
        against("flattened", lambda w, x: F.linear(x.flatten(0, 1), w.w, w.b).unflatten(0, (2, 3)), 2, 3, 4),
        against("no loss of rank", lambda w, x: F.linear(x[None], w.w, w.b)[0]),
        pair(
            "linear: no bias", lambda w, x: F.linear(x, w.w), lambda w, x: torch.mm(x, w.w.t()), (3, 4), weights=_LINEAR
        ),
        pair(
            "linear: flatten before",
            lambda w, x: F.linear(x.flatten(1), w.w),
            lambda w, x: x.reshape(2, 4) @ w.w.t(),
            (2, 2, 2),
            weights=_LINEAR,
        ),
        pair("linear: vector", lambda w, x: w.w @ x, lambda w, x: torch.mv(w.w, x), (4,), weights=_LINEAR),
    ]


def _normed(x: torch.Tensor, *, plain: bool) -> torch.Tensor:
    mean, var = torch.full((3,), 0.5), torch.full((3,), 2.0)
    if plain:
        return torch.ops.aten.native_batch_norm(x, None, None, mean, var, False, 0.1, 1e-5)[0]
    return torch.ops.aten._native_batch_norm_legit_no_training(x, None, None, mean, var, 0.1, 1e-5)[0]


def layers() -> list[Pair]:
    """Layers whose options do not matter, or that are built in two ways."""

    def norm(**options: Any) -> Program:
        return Program(lambda: nn.BatchNorm2d(3, **options))

    def counted(norm: nn.Module) -> Program:
        return Program(lambda: nn.Sequential(nn.Conv2d(3, 3, 3), norm, nn.ReLU()))

    return [
        pair("batch norm: momentum", norm(), norm(momentum=0.5), _IMAGE),
        pair("batch norm: operator", lambda x: _normed(x, plain=True), lambda x: _normed(x, plain=False), _IMAGE),
        pair(
            "batch norm: after a copy",
            counted(nn.BatchNorm2d(3)),
            counted(nn.Sequential(nn.Dropout(), nn.BatchNorm2d(3))),
            _IMAGE,
        ),
        pair(
            "dropout: how much",
            Program(lambda: nn.Sequential(nn.Dropout(0.1), nn.Tanh())),
            Program(lambda: nn.Sequential(nn.Dropout(0.9), nn.Tanh())),
            _SQUARE,
        ),
        pair("gelu", lambda x: F.gelu(x), lambda x: F.gelu(x, approximate="none"), _SQUARE),
        pair(
            "sequence and list", Program(lambda: _stacked(named=False)), Program(lambda: _stacked(named=True)), _SQUARE
        ),
        pair(
            "weight and buffer",
            Program(lambda: _scaled(as_buffer=False)),
            Program(lambda: _scaled(as_buffer=True)),
            _SQUARE,
        ),
        pair(
            "tied and shared",
            Program(lambda: _twice(by_module=True)),
            Program(lambda: _twice(by_module=False)),
            _SQUARE,
        ),
        pair(
            "other weights",
            Program(lambda: nn.Linear(4, 4)),
            Program(lambda: _scaled_by(nn.Linear(4, 4), 1.0)),
            _SQUARE,
        ),
    ]


def _stacked(*, named: bool) -> nn.Module:
    layers = [nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)]
    return _Listed(layers) if named else nn.Sequential(*layers)


class _Listed(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.last, self.first = layers[2], layers[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)))


def _scaled(*, as_buffer: bool) -> nn.Module:
    model = Of(lambda w, x: x * w.a, {"a": (4,)})
    if as_buffer:
        value = model.a.detach()
        del model.a
        model.register_buffer("a", value)
    return model


def _scaled_by(model: nn.Linear, factor: float) -> nn.Linear:
    with torch.no_grad():
        model.weight.mul_(factor)
    return model


class _Twice(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def _twice(*, by_module: bool) -> nn.Module:
    first = nn.Linear(4, 4, bias=False)
    if by_module:
        return _Twice(first, first)
    second = nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    return _Twice(first, second)


def control() -> list[Pair]:
    """Loops and constants."""

    def unrolled(x: torch.Tensor) -> torch.Tensor:
        return x.sin().sin().sin()

    def python_loop(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x.sin()
        return x

    def constant(value: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor) -> Program:
        def make() -> nn.Module:
            model = Of(lambda w, x: x + value(w.c), {"a": (1,)})
            model.register_buffer("c", given, persistent=False)
            return model

        return Program(make)

    return [
        pair("loop: in Python", unrolled, python_loop, _SQUARE),
        pair(
            "constant: folded",
            constant(lambda c: c * 2, torch.arange(4.0)),
            constant(lambda c: c, torch.arange(4.0) * 2),
            _SQUARE,
        ),
        pair(
            "constant: transposed",
            constant(lambda c: c.t(), torch.arange(16.0).reshape(4, 4)),
            constant(lambda c: c, torch.arange(16.0).reshape(4, 4).t()),
            _SQUARE,
        ),
        pair(
            "constant: layout of one",
            constant(lambda c: c, torch.ones(()).expand(1)),
            constant(lambda c: c, torch.ones(1)),
            _SQUARE,
        ),
        pair(
            "constant: layout", constant(lambda c: c, torch.ones(8)[::2]), constant(lambda c: c, torch.ones(4)), _SQUARE
        ),
    ]


def arithmetic() -> list[Pair]:
    """Operands crossed, and numbers, powers and casts written otherwise."""
    one = {"args": ({0: Dim("n", min=2, max=8)},)}
    return [
        pair("crossed: sum", lambda x, y: x + y.sin(), lambda x, y: y.sin() + x, _SQUARE, _SQUARE),
        pair("crossed: comparison", lambda x, y: x > y, lambda x, y: y < x, _SQUARE, _SQUARE),
        pair("crossed: weights", lambda w, x: x * w.a, lambda w, x: w.a * x, _SQUARE, weights={"a": (4,)}),
        pair("power: product", lambda x: x**2, lambda x: x * x, _SQUARE),
        pair("power: root", lambda x: x.abs() ** 0.5, lambda x: x.abs().sqrt(), _SQUARE),
        pair("reciprocal", lambda x: 1 / x, torch.reciprocal, _SQUARE),
        pair("division: scale of attention", lambda x: x / 16**0.5, lambda x: x * 0.25, _SQUARE, dynamic=one),
        pair("difference: number", lambda x: x - 1, lambda x: x + (-1), _SQUARE),
        pair("logic: truth values", lambda x: ~(x > 0), lambda x: torch.logical_not(x > 0), _SQUARE),
        pair("mask: cast by hand", lambda x, y: (x > 0).float() * y, lambda x, y: y * (x > 0), _SQUARE, _SQUARE),
        pair("relu6: clamp", nn.functional.relu6, lambda x: x.clamp(0, 6), _SQUARE),
        pair("softplus: numbers", F.softplus, lambda x: F.softplus(x, 1.0, 20.0), _SQUARE),
    ]


def selection() -> list[Pair]:
    """Rows, greatest elements and kept dimensions, in several words."""
    rows, table = torch.tensor([0, 2]), {"t": _SQUARE}
    return [
        pair("rows: embedding", lambda w, i: F.embedding(i, w.t), lambda w, i: w.t[i], rows, weights=table),
        pair("rows: selected", lambda x, i: x.index_select(1, i), lambda x, i: x[:, i], _SQUARE, rows),
        pair("greatest", lambda x: x.amax(1), lambda x: x.max(1).values, _SQUARE),
        pair("kept dimension", lambda x: x / x.sum(1, keepdim=True), lambda x: x / x.sum(1).unsqueeze(1), _SQUARE),
        pair("normalised", F.normalize, lambda x: x / x.norm(dim=1, keepdim=True).clamp_min(1e-12), _SQUARE),
        pair(
            "broadcast in steps",
            lambda x: x[None].broadcast_to(3, 4, 4).sin(),
            lambda x: x.expand(3, 4, 4).sin(),
            _SQUARE,
        ),
        pair("resized", lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, size=16), _IMAGE),
        pair(
            "range: numbers",
            lambda x: x + torch.arange(4.0),
            lambda x: x + torch.arange(4, dtype=torch.float32),
            _SQUARE,
        ),
    ]


def pairs() -> list[Pair]:
    """Return all of them."""
    families = (writing, defaults, copies, shapes, linear, layers, control, arithmetic, selection)
    return [one for family in families for one in family()]
