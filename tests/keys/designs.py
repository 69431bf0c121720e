"""Two programs made after a design, and variants of them that differ in one thing each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Design:
    """What a program is like; a variant changes one field."""

    activation: Callable[..., torch.Tensor] = torch.relu
    after: Callable[..., Any] = lambda x: x
    bias: bool = True
    causal: bool = False
    ceil: bool = False
    channels: int = 6
    constant: float = 2.0
    dilation: int = 1
    dim: int = 1
    epsilon: float = 1e-5
    groups: int = 1
    keepdim: bool = True
    literal: float = 0.5
    mutates: bool = False
    padding: int = 1
    pool: Callable[..., torch.Tensor] = functional.max_pool2d
    reduce: Callable[..., torch.Tensor] = torch.sum
    returned: Callable[..., Any] = lambda one, other: (one, other)
    stride: int = 1
    subtract: Callable[..., torch.Tensor] = torch.sub
    tied: bool = False
    window: int = 2


class Picture(nn.Module):
    """A convolution, a pooling and a reduction of images (2, 4, 8, 8)."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        options = {"padding": design.padding, "stride": design.stride, "dilation": design.dilation}
        self.design = design
        self.conv = nn.Conv2d(4, design.channels, 3, groups=design.groups, **options)

    def forward(self, image: torch.Tensor) -> Any:
        design = self.design
        pooled = design.pool(design.activation(self.conv(image)), design.window, 2, ceil_mode=design.ceil)
        return design.returned(design.reduce(pooled, dim=(2, 3), keepdim=design.keepdim), pooled)


class Sequence(nn.Module):
    """A normalisation, an attention, linear layers and some arithmetic on (2, 6, 16)."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.design = design
        self.norm = nn.LayerNorm(16, eps=design.epsilon)
        self.one = nn.Linear(16, 16, bias=False)
        self.two = self.one if design.tied else nn.Linear(16, 16, bias=False)
        self.out = nn.Linear(16, 5, bias=design.bias)
        self.register_buffer("constant", torch.arange(16) * design.constant, persistent=False)
        self.register_buffer("count", torch.zeros(16))

    def forward(self, x: torch.Tensor, factor: int = 3, *more: torch.Tensor) -> Any:
        design = self.design
        heads = self.norm(x).unsqueeze(1)
        attended = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=design.causal).squeeze(1)
        mixed = design.subtract(self.one(attended), self.two(x)) * factor + self.count
        if design.mutates:
            self.count.add_(1)
        mixed = design.after(torch.softmax(mixed * self.constant + design.literal, design.dim))
        return sum((one.sum() for one in more), start=self.out(mixed))


@dataclass(frozen=True)
class Variant:
    """A program that differs from the stored one in one thing, and how the difference is told: a regular expression."""

    model: nn.Module
    args: tuple[Any, ...]
    told: str
    options: dict[str, Any] = field(default_factory=dict)


BASE = Design()
IMAGE, X = torch.randn(2, 4, 8, 8), torch.randn(2, 6, 16)


def picture(told: str = "", **changed: Any) -> Variant:
    """Return the program of images with one thing changed in its design."""
    return Variant(Picture(replace(BASE, **changed)).eval(), (IMAGE,), told)


def sequence(told: str = "", **changed: Any) -> Variant:
    """Return the program of sequences with one thing changed in its design."""
    return Variant(Sequence(replace(BASE, **changed)).eval(), (X, 3), told)


def called(told: str, *args: Any, **options: Any) -> Variant:
    """Return the program of sequences called in another way."""
    return Variant(Sequence(BASE).eval(), args, told, options)


def _average(x: torch.Tensor, window: int, stride: int, ceil_mode: bool) -> torch.Tensor:
    return functional.avg_pool2d(x, window, stride, ceil_mode=ceil_mode)


def variants() -> dict[str, Variant]:
    """Return variants by what was changed."""
    node, conv, pool = r"graph: node ", r"graph: node convolution argument ", r"graph: node max_pool2d_with_indices "
    return {
        "another activation": picture(
            node + r"relu operator: aten.relu.default -> aten.tanh.default", activation=torch.tanh
        ),
        "a stride": picture(conv + r"stride\[0\]: 1 -> 2 \(and 1 alike\)", stride=2),
        "a padding": picture(conv + r"padding\[0\]: 1 -> 2 \(and 1 alike\)", padding=2),
        "a dilation": picture(conv + r"dilation\[0\]: 1 -> 2 \(and 1 alike\)", dilation=2),
        "groups": picture(conv + r"groups: 1 -> 2 \(and 1 more\)", groups=2),
        "more channels": picture(r"graph: weight w\d shape\[0\]: 6 -> 8 \(and 1 alike\)", channels=8),
        "another pooling": picture(pool + r"operator: \S+ -> aten.avg_pool2d.default", pool=_average),
        "a window": picture(pool + r"argument kernel_size\[0\]: 2 -> 4 \(and 1 alike\)", window=4),
        "ceil mode": picture(pool + r"argument ceil_mode: false -> true", ceil=True),
        "the mean": picture(node + r"sum operator: aten.sum.dim_IntList -> aten.mean.dim", reduce=torch.mean),
        "dimensions dropped": picture(node + r"sum argument keepdim: true -> false", keepdim=False),
        "outputs in another order": picture(
            r"graph: outputs 0, 1: sum, (\w+) -> \1, sum", returned=lambda one, other: (other, one)
        ),
        "outputs as a list": picture(
            r"structure.output: tuple\(\*, \*\) -> list\(\*, \*\)", returned=lambda one, other: [one, other]
        ),
        "one output less": picture(
            r"structure.output: tuple\(\*, \*\) -> tuple\(\*\)", returned=lambda one, other: (one,)
        ),
        "one output twice": picture(r"graph: output 1: \w+ -> sum", returned=lambda one, other: (one, one)),
        "a larger image": replace(picture(r"inputs\[0\].shape\[2\]: 8 -> 16"), args=(torch.randn(2, 4, 16, 8),)),
        "half precision": replace(
            picture(r"inputs\[0\].dtype: float32 -> float16"), model=Picture(BASE).eval().half(), args=(IMAGE.half(),)
        ),
        "softmax over another dimension": sequence(node + r"softmax argument dim: 1 -> 2", dim=2),
        "operands swapped": sequence(
            node + r"sub arguments self, other: (\w+), (\w+) -> \2, \1", subtract=lambda one, other: other - one
        ),
        "an operator of the same form": sequence(
            node + r"sub operator: aten.sub.Tensor -> aten.mul.Tensor", subtract=torch.mul
        ),
        "one operator more": sequence(node + r"neg added: aten.neg.default\(softmax\)", after=torch.neg),
        "causal attention": sequence(
            node + r"scaled_dot_product_attention argument is_causal: false -> true", causal=True
        ),
        "another epsilon": sequence(node + r"native_layer_norm argument eps: 1e-05 -> 1e-06", epsilon=1e-6),
        "another literal": sequence(node + r"add\w* argument other: 0.5 -> 0.25", literal=0.25),
        "another constant": sequence(r"graph: constant c\d content: b3:\w+ -> b3:\w+", constant=3.0),
        "no bias": sequence(node + r"addmm operator: aten.addmm.default -> aten.mm.default", bias=False),
        "tied weights": sequence(node + r"mm_1 argument mat2: (permute_1 -> permute|w\d -> w\d)", tied=True),
        "a buffer that changes": sequence(r"graph: new content of weight \d added: add\w*", mutates=True),
        "another dtype": called(r"inputs\[0\].dtype: float32 -> float64", X.double(), 3),
        "another layout": called(r"inputs\[0\].stride: \[96, 16, 1\] -> \[96, 1, 6\]", X.mT.contiguous().mT, 3),
        "another value": called(r"values\[1\]: 3 -> 4", X, 4),
        "one input more": called(r"inputs\[2\] added: \{dtype: float32, .*\}( \(and 1 more\))?", X, 3, X),
        "a dynamic size": replace(
            picture(r"inputs\[0\].shape\[0\]: 2 -> s0"),
            options={"dynamic_shapes": ({0: torch.export.Dim("b", max=9)},)},
        ),
    }
