"""Casts joins chains of casts that lose nothing."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.contract import Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.arithmetic import Casts, holds

X = torch.randn(3, 4)
DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float32)


def test_a_cast_and_back_is_gone() -> None:
    """Every f16 is an f32."""
    assert operators(keeps_its_promise(Casts(), Calls(lambda _, x: x.float().half() * 2), X.half())) == ["mul"]


def test_a_cast_that_rounds_stays() -> None:
    """An f32 is no f16."""
    graph = keeps_its_promise(Casts(), Calls(lambda _, x: x.half().float() * 2), X)
    assert operators(graph) == ["_to_copy", "_to_copy", "mul"]


def test_two_casts_are_one() -> None:
    """The way to f64 over f32 is the way to f64."""
    graph = keeps_its_promise(Casts(), Calls(lambda _, x: x.float().double() * 2), X.half())
    assert operators(graph) == ["_to_copy", "mul"]


def test_a_returned_pair_is_a_copy() -> None:
    """A result has memory of its own."""
    assert operators(keeps_its_promise(Casts(), Calls(lambda _, x: x.double().float()), X)) == ["clone"]


@pytest.mark.parametrize("narrow", DTYPES, ids=str)
def test_a_dtype_holds_another_exactly_when_all_its_values_survive(narrow: torch.dtype) -> None:
    """For each pair of dtypes the claim is checked on every value of up to 16 bits, and on the ends of other ranges."""
    values = _values(narrow)
    for wide in (*DTYPES, torch.float64, torch.int64):
        exact, cast = values.double(), values.to(wide).double()
        survived = torch.equal(exact.nan_to_num(7e77), cast.nan_to_num(7e77))
        assert holds(wide, narrow) == survived, wide


def test_a_dtype_of_powers_of_two_has_no_zero() -> None:
    """``float8_e8m0fnu`` does not hold False, nor an integer."""
    for narrow in (torch.bool, torch.uint8, torch.float16):
        assert not holds(torch.float8_e8m0fnu, narrow)
    assert holds(torch.float8_e8m0fnu, torch.float8_e8m0fnu)
    assert holds(torch.float32, torch.float8_e8m0fnu)


def _values(dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype in {torch.uint8, torch.int8}:
        return torch.arange(256).to(torch.uint8).view(dtype)
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    if dtype in {torch.int16, torch.float16, torch.bfloat16}:
        return bits.view(dtype)
    if dtype is torch.int32:
        return torch.tensor([-(2**31), -(2**31) + 1, 2**24 + 1, 2**31 - 1], dtype=dtype)
    return torch.tensor([1e-45, 3.4e38, 1 + 2**-23, -0.0], dtype=dtype)


def test_a_weight_in_float8_is_cast_where_it_is_used() -> None:
    """Operators promote no float8."""
    model = Calls(lambda own, x: x @ (own.weight.to(x.dtype) * own.scale))
    model.weight, model.scale = torch.randn(4, 4).to(torch.float8_e4m3fn), torch.rand(1, 4)
    assert "_to_copy" in operators(keeps_its_promise(Casts(), model, X))


def test_casting_there_and_back_makes_no_difference() -> None:
    """Only this pass gives a model with a cast that cancels the key of one without."""
    only_with("casts", Calls(lambda _, x: x.double().float() * 2), Calls(lambda _, x: x * 2), X)
