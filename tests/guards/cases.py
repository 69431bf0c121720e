"""Models that decide by sizes, the sizes that they are called with, and what such a call may come to."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from tests.comparing import difference
from trtcache.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

KINDS = ("dynamic", "auto", "named", "2*a", "a+1")
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)


class Calls(nn.Module):
    """A module whose ``forward`` is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        """Return what the function returns."""
        return self.function(*args)


@dataclass(frozen=True)
class Case:
    """A function of tensors whose sizes are letters or digits: ``("ab", "ac")`` are two with a dimension in common."""

    function: Callable[..., Any]
    shapes: tuple[str, ...] = ("ab",)

    @property
    def letters(self) -> list[str]:
        """The sizes that vary."""
        return sorted({letter for shape in self.shapes for letter in shape if letter.isalpha()})

    def model(self) -> nn.Module:
        """Return the function as a module."""
        return Calls(self.function).eval()

    def inputs(self, sizes: dict[str, int]) -> tuple[Tensor, ...]:
        """Return tensors of these sizes, the same ones each time."""
        generator = torch.Generator().manual_seed(0)
        shapes = [[sizes[one] if one.isalpha() else int(one) for one in shape] for shape in self.shapes]
        return tuple(torch.rand(shape, generator=generator) for shape in shapes)

    def example(self, kind: str = "dynamic") -> dict[str, int]:
        """Return sizes to export with, no two alike."""
        sizes = {letter: 4 + 2 * place for place, letter in enumerate(self.letters)}
        return self._related(sizes, kind)

    def _related(self, sizes: dict[str, int], kind: str) -> dict[str, int]:
        if "b" in sizes and kind in {"2*a", "a+1"}:
            sizes["b"] = 2 * sizes["a"] if kind == "2*a" else sizes["a"] + 1
        return sizes

    def dynamic_shapes(self, kind: str, *, spread: bool = True) -> Any:
        """Return the ``dynamic_shapes`` to export with; ``spread`` for a ``forward`` that takes ``*args``."""
        named = {letter: Dim(f"size_{letter}") for letter in self.letters}
        if kind == "2*a":
            named["b"] = 2 * named["a"]
        elif kind == "a+1":
            named["b"] = named["a"] + 1
        given = {"dynamic": Dim.DYNAMIC, "auto": Dim.AUTO}.get(kind)
        shapes = tuple(
            {dim: given or named[letter] for dim, letter in enumerate(shape) if letter.isalpha()}
            for shape in self.shapes
        )
        return (shapes,) if spread else shapes

    def draws(self, kind: str, count: int, seed: str) -> list[dict[str, int]]:
        """Return sizes of calls, with 0, 1, equal ones and, for derived dimensions, related ones among them."""
        generator = random.Random(seed)
        found = [dict.fromkeys(self.letters, 0), dict.fromkeys(self.letters, 1), self.example(kind)]
        while len(found) < count:
            sizes = {letter: generator.choice(SIZES) for letter in self.letters}
            if generator.random() < 0.3:
                sizes = dict.fromkeys(self.letters, generator.choice(SIZES))
            found.append(self._related(sizes, kind) if generator.random() < 0.7 else sizes)
        return found


def outcomes(
    compiled: Callable[..., Any],
    eager: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    refused: type = InputError,
) -> Counter[str]:
    """Return how many calls were right and how many refused.

    Raises:
        AssertionError: a call was answered wrongly, or answered where eager torch raises, or raised anything else.
    """
    found: Counter[str] = Counter()
    for args in calls:
        what = f"{[tuple(one.shape) if isinstance(one, torch.Tensor) else one for one in args]}"
        expected, failed = _called(eager, args)
        try:
            answer = compiled(*pytree.tree_map_only(torch.Tensor, torch.clone, args))
        except Exception as error:
            if not isinstance(error, refused):
                raise
            found["refused"] += 1
            continue
        assert failed is None, f"{what}: answered, and torch raises {failed!r}"
        why = difference(expected, answer, tolerance=1e-4)
        assert why is None, f"{what}: {why}"
        found["right"] += 1
    return found


def answers(eager: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Say whether eager torch answers a call."""
    return _called(eager, args)[1] is None


def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    try:
        return function(*pytree.tree_map_only(torch.Tensor, torch.clone, args)), None
    except Exception as error:  # noqa: BLE001  # whatever torch raises
        return None, error


def _one_of(condition: Any, x: Tensor) -> Tensor:
    return x * 2 if condition else x * 3


def _padded(x: Tensor) -> Tensor:
    if x.shape[1] % 4:
        x = nn.functional.pad(x, (0, 4 - x.shape[1] % 4))
    return x.view(x.shape[0], -1, 4).sum(1)


def _windows(x: Tensor) -> Tensor:
    more = (3 - x.shape[0] % 3) % 3
    if more:
        x = nn.functional.pad(x, (0, 0, 0, more))
    return x.view(-1, 3, x.shape[1]).sum(1)


def _checked(x: Tensor, y: Tensor) -> Tensor:
    torch._check(x.shape[0] != y.shape[0])  # type: ignore[no-untyped-call]  # torch's
    return x * 2


def _largest(x: Tensor, y: Tensor) -> Tensor:
    largest = torch.sym_max(x.shape[0], y.shape[0])  # type: ignore[no-untyped-call]  # torch's
    return _one_of(largest == y.shape[0], x)


def _halved(x: Tensor) -> Tensor:
    steps, size = 0, x.shape[0]
    while size > 1:
        size, steps = size // 2, steps + 1
    return x * steps


def _asserted(x: Tensor) -> Tensor:
    assert x.shape[0] % 2 == 0
    return x + 1


def _written(x: Tensor) -> Tensor:
    z = x * 1
    z.t().reshape(-1).add_(1)  # a view only where a size is 1
    return z


def _pooled(x: Tensor) -> Tensor:
    return nn.functional.fractional_max_pool2d(
        x, 2, output_ratio=(0.5, 0.5), _random_samples=torch.full((2, 3, 2), 0.5)
    )


CASES = {
    "eq": Case(lambda x, y: _one_of(x.shape[1] == y.shape[1], x), ("ab", "cd")),
    "ne": Case(lambda x, y: _one_of(x.shape[1] != y.shape[1], x), ("ab", "cd")),
    "gt": Case(lambda x, y: _one_of(x.shape[1] > y.shape[1], x), ("ab", "cd")),
    "le": Case(lambda x: _one_of(x.shape[1] <= 6, x)),
    "remainder": Case(lambda x: _one_of(x.shape[0] % 2 == 0, x)),
    "quotient": Case(lambda x: _one_of(x.shape[0] // 3 == 1, x)),
    "negative quotient": Case(lambda x: _one_of(-(-x.shape[0] // 3) == 2, x)),
    "shift": Case(lambda x: _one_of(x.shape[0] >> 1 == 2, x)),
    "product": Case(lambda x: _one_of(x.shape[0] * x.shape[1] > 20, x)),
    "power": Case(lambda x: _one_of(x.shape[0] ** 2 > 20, x)),
    "max": Case(lambda x: _one_of(max(x.shape[0], x.shape[1]) > 5, x)),
    "min": Case(lambda x: _one_of(min(x.shape[0], x.shape[1]) < 5, x)),
    "sym_max": Case(_largest, ("ab", "cd")),
    "numel": Case(lambda x: _one_of(x.numel() > 30, x)),
    "pad": Case(_padded),
    "windows": Case(_windows),
    "check": Case(_checked, ("ab", "cd")),
    "assert": Case(_asserted),
    "fractional pool": Case(_pooled, ("23ab",)),
    "ratio": Case(lambda x: _one_of(x.shape[0] / x.shape[1] > 0.5, x)),
    "float": Case(lambda x: _one_of(math.floor(x.shape[0] * 0.7) > 2, x)),
    "one": Case(lambda x: _one_of(x.shape[0] == 1, x)),
    "nothing": Case(lambda x: _one_of(x.numel() == 0, x)),
    "truth": Case(lambda x: _one_of(x.shape[0], x)),
    "zero or one": Case(lambda x: _one_of((x.shape[0] == 1) | (x.shape[1] == 0), x)),
    "squeeze": Case(lambda x: x.squeeze()),
    "amax": Case(lambda x: x.amax(1)),
    "logsumexp": Case(lambda x: x.logsumexp(1)),
    "roll": Case(lambda x: x.roll(3, 1)),
    "and or not": Case(
        lambda x: _one_of((x.shape[0] > 3 and x.shape[1] < 8) or not x.shape[0] == x.shape[1], x)  # noqa: SIM201
    ),
    "chain": Case(lambda x: _one_of(2 < x.shape[0] < 7, x)),
    "abs": Case(lambda x: _one_of(abs(x.shape[0] - x.shape[1]) > 1, x)),
    "loop": Case(_halved),
    "slice": Case(lambda x: x[2:5] * 2),
    "window of all": Case(lambda x: x.unfold(1, 3, 1).sum(-1)),
    "broadcast": Case(lambda x, y: x[:, None] + y[None], ("ab", "cb")),
    "same": Case(lambda x, y: _one_of(x.shape == y.shape, x), ("ab", "cd")),
    "contiguous": Case(lambda x: _one_of(x.t().is_contiguous(), x)),
    "channels last": Case(lambda x: _one_of(x.is_contiguous(memory_format=torch.channels_last), x), ("2abc",)),
    "copy or view": Case(_written),
    "stride": Case(lambda x: _one_of(x.stride()[0] == 1, x)),
    "common": Case(lambda x, y: _one_of(x.shape[1] > y.shape[1], x), ("ab", "ac")),
}


class Combined(nn.Module):
    """One model with many kinds of guards."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return what depends on which of two sizes is the larger, whether one is even, and how many elements are."""
        larger = x * 2 if x.shape[1] > y.shape[1] else x * 3
        even = y + 1 if y.shape[0] % 2 == 0 else y - 1
        empty = larger.sum() if x.numel() == 0 else larger.exp().sum()
        other = even * 5 if x.shape[0] == 1 else even * 7
        return larger, even, empty, other


COMBINED = Case(Combined().forward, ("ab", "cd"))


def calls(case: Case, kind: str = "dynamic", count: int = 20, seed: str = "") -> Sequence[tuple[Tensor, ...]]:
    """Return the arguments of random calls."""
    return [case.inputs(sizes) for sizes in case.draws(kind, count, seed)]
