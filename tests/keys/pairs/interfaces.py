"""Differing pairs: dynamic sizes, weights and constants, control flow, mutation, and outputs."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export import Dim

from tests.keys.pairs.pair import Of, Pair, Program, pair

if TYPE_CHECKING:
    from collections.abc import Callable

_SQUARE = (4, 4)


def sizes() -> list[Pair]:
    """Which sizes may vary, in what range, and which go together."""

    def relu(*shape: int, **dims: Dim) -> Program:
        names = {int(name[1:]): dim for name, dim in dims.items()}
        return Program(nn.ReLU, (shape,), {"input": names} if names else None)

    def added(shape: tuple[int, ...], dynamic: Any) -> Program:
        def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a.sum() + b

        return Program(lambda: Of(function, {}), (shape, shape), {"args": dynamic})

    def by(*names: int | str) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * (x.shape[names[0]] if isinstance(names[0], int) else sum(x.shape))

    batch, other = Dim("batch", min=2, max=8), Dim("other", min=2, max=8)
    both = {"args": ({0: batch, 1: other},)}
    return [
        pair("sizes: static", relu(4, 3), relu(5, 3)),
        pair("sizes: dynamic", relu(4, 3), relu(4, 3, d0=batch), probe=((5, 3),)),
        pair("sizes: which dim", relu(4, 4, d0=batch), relu(4, 4, d1=batch), probe=((5, 4),)),
        pair("sizes: most", relu(4, 3, d0=batch), relu(4, 3, d0=Dim("batch", min=2, max=16)), probe=((9, 3),)),
        pair("sizes: least", relu(4, 3, d0=batch), relu(4, 3, d0=Dim("batch", min=3, max=8)), probe=((2, 3),)),
        pair(
            "sizes: together",
            added((4, 3), ({0: batch},) * 2),
            added((4, 3), ({0: batch}, {0: other})),
            probe=((4, 3), (5, 3)),
        ),
        pair(
            "sizes: derived",
            added((4, 3), ({0: batch}, {0: other})),
            Program(lambda: Of(lambda a, b: a.sum() + b, {}), ((4, 3), (8, 3)), {"args": ({0: batch}, {0: 2 * batch})}),
        ),
        pair("sizes: used", by(0), by(1), (3, 5), dynamic=both),
        pair("sizes: arithmetic", by(0), by("sum"), (3, 5), dynamic=both),
        pair(
            "sizes: view",
            lambda x: x.reshape(-1, 2),
            lambda x: x.reshape(-1, 3),
            (4, 6),
            dynamic={"args": ({0: batch},)},
        ),
        pair(
            "sizes: end of a slice",
            lambda x: x[:-1],
            lambda x: x[:-2],
            (6, 2),
            dynamic={"args": ({0: Dim("n", min=4, max=64)},)},
        ),
    ]


def weights() -> list[Pair]:
    """Tied and crossed weights, their shapes and layouts, and constants by value."""

    def constant(value: torch.Tensor) -> Program:
        def make() -> nn.Module:
            model = Of(lambda w, x: x + w.c, {"a": (1,)})
            model.register_buffer("c", value, persistent=False)
            return model

        return Program(make)

    def typed(dtype: torch.dtype) -> Program:
        return Program(lambda: nn.Linear(4, 4).to(dtype), (torch.ones(2, 4, dtype=dtype),))

    def laid_out(*, transposed: bool) -> Program:
        def make() -> nn.Module:
            model = nn.Linear(4, 4, bias=False)
            if transposed:
                model.weight = nn.Parameter(model.weight.detach().t())
            return model

        return Program(make)

    two, three = {"a": _SQUARE, "b": _SQUARE}, {"a": _SQUARE, "b": _SQUARE, "c": _SQUARE}
    return [
        pair("weights: tied", lambda w, x: x @ w.a @ w.a, lambda w, x: x @ w.a @ w.b, _SQUARE, weights=two),
        pair(
            "weights: crossed", lambda w, x: x @ w.a @ w.b @ w.a, lambda w, x: x @ w.a @ w.b @ w.b, _SQUARE, weights=two
        ),
        pair(
            "weights: tied elsewhere",
            lambda w, x: x @ w.a @ w.a @ w.c,
            lambda w, x: x @ w.a @ w.b @ w.b,
            _SQUARE,
            weights=three,
        ),
        pair(
            "weights: difference", lambda w, x: x @ w.a - x @ w.b, lambda w, x: x @ w.a - x @ w.a, _SQUARE, weights=two
        ),
        pair(
            "weights: crossed sum",
            lambda w, x: (x @ w.a + x.sin() @ w.b) @ w.a,
            lambda w, x: (x @ w.a + x.sin() @ w.b) @ w.b,
            _SQUARE,
            weights=two,
        ),
        pair(
            "weights: transposed use", lambda w, x: x @ w.a @ w.b, lambda w, x: x @ w.a @ w.b.t(), _SQUARE, weights=two
        ),
        pair("weights: layout", laid_out(transposed=False), laid_out(transposed=True), _SQUARE),
        pair("weights: shape", Program(lambda: nn.Linear(4, 4)), Program(lambda: nn.Linear(4, 5)), _SQUARE),
        pair("weights: dtype", typed(torch.float32), typed(torch.float64)),
        pair("weights: or input", lambda w, x, y: x @ w.a, lambda w, x, y: x @ y, _SQUARE, _SQUARE, weights=two),
        pair("constant: value", constant(torch.ones(4)), constant(torch.ones(4) + 1e-3), _SQUARE),
        pair("constant: shape", constant(torch.ones(4)), constant(torch.ones(2, 1, 1)), _SQUARE),
        pair("constant: order", constant(torch.arange(4.0)), constant(torch.arange(4.0).flip(0)), _SQUARE),
        pair("constant: dtype", constant(torch.ones(4)), constant(torch.ones(4).double()), _SQUARE),
    ]


def control() -> list[Pair]:
    """Loops, branches and side effects."""

    def times(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def function(x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = torch.sin(x)
            return x

        return function

    def counter(step: int) -> Program:
        def function(w: Any, x: torch.Tensor) -> torch.Tensor:
            w.seen.add_(step)
            return x + w.seen

        def make() -> nn.Module:
            model = Of(function, {"a": (1,)})
            model.register_buffer("seen", torch.zeros(1))
            return model

        return Program(make)

    return [
        pair("loop: count", times(2), times(3), _SQUARE),
        pair("loop: nested calls", lambda x: x.sin().cos(), lambda x: x.cos().sin(), _SQUARE),
        pair("branch", lambda x: x.relu() if x.dim() == 2 else x, lambda x: x.relu() if x.dim() == 3 else x, _SQUARE),
        pair("in place: on an input", lambda x: x.add_(1), lambda x: x.add(1), _SQUARE),
        pair("in place: which input", lambda x, y: x.add_(y), lambda x, y: y.add_(x), _SQUARE, _SQUARE),
        pair("in place: on a buffer", counter(1), counter(2), _SQUARE),
    ]


def outputs() -> list[Pair]:
    """Order, number, structure, and constants among them."""

    def of(pick: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        return lambda x: pick(x.sin(), x.cos())

    def against(name: str, one: Callable[..., Any], other: Callable[..., Any]) -> Pair:
        return pair(f"outputs: {name}", of(one), of(other), _SQUARE)

    return [
        against("order", lambda a, b: (a, b), lambda a, b: (b, a)),
        against("number", lambda a, b: (a,), lambda a, b: (a, b)),
        against("one in a tuple", lambda a, b: a, lambda a, b: (a,)),
        against("list", lambda a, b: (a, b), lambda a, b: [a, b]),
        against("names", lambda a, b: {"a": a, "b": b}, lambda a, b: {"a": a, "c": b}),
        against("names crossed", lambda a, b: {"a": a, "b": b}, lambda a, b: {"a": b, "b": a}),
        against("ordered mapping", lambda a, b: {"a": a}, lambda a, b: OrderedDict(a=a)),
        against("nesting", lambda a, b: (a, (b,)), lambda a, b: ((a,), b)),
        against("twice", lambda a, b: (a, a), lambda a, b: (a, b)),
        against("none", lambda a, b: (a, None), lambda a, b: (a,)),
        against("constant", lambda a, b: (a, 1), lambda a, b: (a, 2)),
        against("kind of constant", lambda a, b: (a, 1), lambda a, b: (a, True)),
        pair(
            "inputs: structure",
            Program(lambda: Of(lambda x: (x, x[0] * 1), {}), ([torch.ones(2)],)),
            Program(lambda: Of(lambda x: (x, x["a"] * 1), {}), ({"a": torch.ones(2)},)),
        ),
        pair("inputs: which", lambda x, y: x * 2, lambda x, y: y * 2, _SQUARE, _SQUARE),
        pair(
            "inputs: a number",
            Program(lambda: Of(lambda x, n: x * n, {}), (_SQUARE, 2.0)),
            Program(lambda: Of(lambda x, n: x * n, {}), (_SQUARE, 3.0)),
        ),
        pair(
            "inputs: layout",
            Program(lambda: Of(lambda x: x.permute(0, 2, 3, 1) * 1, {}), (torch.ones(1, 2, 3, 4),)),
            Program(
                lambda: Of(lambda x: x.permute(0, 2, 3, 1) * 1, {}),
                (torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last),),
            ),
        ),
    ]


def pairs() -> list[Pair]:
    """Return all of them."""
    return [*sizes(), *weights(), *control(), *outputs()]
