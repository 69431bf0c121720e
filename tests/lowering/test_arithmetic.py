"""Arithmetic writes what gives the same bits in one way."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.arithmetic import Arithmetic
from trtcache.lowering.rewrites.dimensions import Dimensions

EDGES = torch.tensor([0.0, -0.0, 1.5, -2.5, 1e-45, 3e38, float("inf"), -float("inf"), float("nan")])
X = torch.cat([EDGES, torch.randn(23) * torch.randn(23).mul(20).exp()])
Y = X.flip(0)
PLAIN = torch.rand(4) + 0.5

PAIRS = [
    pytest.param(lambda _, x, y: x**2, lambda _, x, y: x * x, ["mul"], id="square"),
    pytest.param(lambda _, x, y: x**0.5, lambda _, x, y: x.sqrt(), ["sqrt"], id="root"),
    pytest.param(lambda _, x, y: x**-0.5, lambda _, x, y: x.rsqrt(), ["rsqrt"], id="inverse root"),
    pytest.param(lambda _, x, y: x**-1, lambda _, x, y: 1 / x, ["reciprocal"], id="reciprocal"),
    pytest.param(lambda _, x, y: x / 8, lambda _, x, y: x * 0.125, ["mul"], id="power of two"),
    pytest.param(lambda _, x, y: x - 1.5, lambda _, x, y: x + -1.5, ["add"], id="number"),
    pytest.param(lambda _, x, y: x + -y, lambda _, x, y: x - y, ["sub"], id="negative operand"),
    pytest.param(lambda _, x, y: -x + y, lambda _, x, y: y - x, ["sub"], id="negative first operand"),
    pytest.param(lambda _, x, y: -x + 2, lambda _, x, y: 2 - x, ["sub"], id="negative and number"),
    pytest.param(lambda _, x, y: torch.add(x, y, alpha=-1), lambda _, x, y: x - y, ["sub"], id="factor"),
    pytest.param(lambda _, x, y: torch.sub(x, -y, alpha=-1), lambda _, x, y: x - y, ["sub"], id="two signs"),
    pytest.param(lambda _, x, y: x != x, lambda _, x, y: x.isnan(), ["isnan"], id="no number"),
    pytest.param(lambda _, x, y: x * -1, lambda _, x, y: -x, ["neg"], id="sign"),
    pytest.param(lambda _, x, y: x.clamp(min=0).clamp(max=6), lambda _, x, y: x.clamp(0, 6), ["clamp"], id="clamps"),
    pytest.param(lambda _, x, y: functional.relu6(x), lambda _, x, y: x.clamp(0, 6), ["clamp"], id="relu6"),
    pytest.param(
        lambda _, x, y: torch.logical_not(torch.logical_and(x > 0, y > 0)),
        lambda _, x, y: ~((x > 0) & (y > 0)),
        ["bitwise_not"],
        id="logic",
    ),
]


@pytest.mark.parametrize(("one", "other", "last"), PAIRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_same_bits_are_written_in_one_way(one: object, other: object, last: list[str], dtype: torch.dtype) -> None:
    """Zeros of both signs, infinities and subnormal numbers give the same bits; both forms end in one operator."""
    x, y = X.to(dtype), Y.to(dtype)
    if dtype is torch.float32 or not set(last) & {"sqrt", "rsqrt", "reciprocal"}:
        first, second = one(None, x, y), other(None, x, y)
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(first.signbit() & (first == 0), second.signbit() & (second == 0))
        assert (
            operators(keeps_its_promise((Dimensions(), Arithmetic()), Calls(one), PLAIN.to(dtype), PLAIN.to(dtype)))[
                -1:
            ]
            == last
        )


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: x**3,
        lambda _, x: x / 3,
        lambda _, x: x / 2.0**40,
        lambda _, x: x + 0,
        lambda _, x: x.half() ** 0.5,
        lambda _, x: -x + (x > 0),
        lambda _, x: (x > 0) + -x,
        lambda _, x: x.int() / 2,
        lambda _, x: x.clamp(max=1).clamp(min=0),
        lambda _, x: torch.logical_and(x, x),
        lambda _, x: torch.add(x, x.int(), alpha=-1),
    ],
)
def test_what_rounds_otherwise_stays(function: object) -> None:
    """Other powers and divisors, whole numbers, booleans, and clamps in the other order are left alone."""
    keeps_its_promise(Dimensions(), Calls(function), torch.rand(4))
    graph = keeps_its_promise((Dimensions(), Arithmetic()), Calls(function), torch.rand(4))
    assert not Arithmetic()(graph.graph_module).modified


def test_division_by_a_power_of_two_is_a_product() -> None:
    """Only this pass gives ``x / 2`` and ``x * 0.5`` one key, for any batch."""
    one, other = Calls(lambda _, x: x / 2), Calls(lambda _, x: x * 0.5)
    only_with("arithmetic", one, other, torch.randn(4, 2), dynamic=({0: DYNAMIC},))
