"""Operators are taken apart for backends that ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.lowering.lowered import digest, operators, outputs
from tests.models import Calls
from trtcache.errors import PreconditionError
from trtcache.lowering import lower
from trtcache.lowering.rewrites.optional import UNPACKED

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.linspace(-2.0, 2.0, 12).view(3, 4).clone()

ADDMM: dict[str, Callable[..., torch.Tensor]] = {
    "linear": lambda lin, x: lin(x),
    "factors": lambda lin, x: torch.addmm(lin.bias, x, lin.weight, beta=0.5, alpha=3),
    "no_bias": lambda lin, x: torch.addmm(lin.bias * torch.nan, x, lin.weight, beta=0),
}
SOFTMAX: dict[str, Callable[..., torch.Tensor]] = {
    "last": lambda lin, x: x.log_softmax(-1),
    "first": lambda lin, x: x.log_softmax(0),
    "far_apart": lambda lin, x: (x * 1000).log_softmax(1),
    "half": lambda lin, x: x.half().log_softmax(1),
    "half_to_float": lambda lin, x: x.half().log_softmax(1, dtype=torch.float32),
    "scalar": lambda lin, x: x.sum().log_softmax(0),
}


@pytest.mark.parametrize("name", ADDMM)
def test_an_unpacked_addmm_keeps_results(name: str) -> None:
    """There is a ``mm`` in place of the ``addmm``, and results are the model's, with any factors."""
    model = Calls(ADDMM[name])
    program = lower(model, (X,), unpack={"addmm"})
    assert "mm" in operators(program)
    assert "addmm" not in operators(program)
    torch.testing.assert_close(outputs(program, X)[0], model(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SOFTMAX)
def test_an_unpacked_log_softmax_keeps_results(name: str) -> None:
    """It is made of differences, exponentials and a logarithm, and stays finite where a softmax rounds to zero."""
    model = Calls(SOFTMAX[name])
    program = lower(model, (X,), unpack={"log_softmax"})
    assert "_log_softmax" not in operators(program)
    made, expected = outputs(program, X)[0], model(X)
    assert made.dtype == expected.dtype
    assert torch.isfinite(made).all()
    torch.testing.assert_close(made, expected)


def test_sizes_stay_symbolic() -> None:
    """A program of a dynamic batch answers other batch sizes."""
    model = Calls(lambda lin, x: lin(x).log_softmax(1))
    batch = (({0: torch.export.Dim("batch", min=2, max=9)},),)
    program = lower(model, (X,), dynamic_shapes=batch, unpack=set(UNPACKED))
    more = torch.randn(7, 4)
    torch.testing.assert_close(outputs(program, more)[0], model(more), rtol=1e-5, atol=1e-5)


def test_nothing_is_unpacked_unasked_and_what_is_asked_is_in_the_key() -> None:
    """Without a wish ``addmm`` stays whole; with one the pipeline says so, even where there is nothing to unpack."""
    assert "addmm" in operators(lower(nn.Linear(4, 4), (X,)))
    asked = lower(nn.ReLU(), (X,), unpack={"addmm"})
    assert "unpack@1{operators=('addmm',)}" in asked.pipeline
    assert digest(asked) == digest(lower(nn.ReLU(), (X,)))


def test_what_is_unpacked_equals_what_is_written_apart() -> None:
    """Only this pass makes an ``addmm`` with a factor, and its parts written one by one, one program."""
    whole = Calls(lambda lin, x: torch.addmm(lin.bias, x, lin.weight, alpha=2))
    apart = Calls(lambda lin, x: torch.mm(x, lin.weight) * 2 + lin.bias)
    assert digest(lower(whole, (X,), unpack={"addmm"})) == digest(lower(apart, (X,), unpack={"addmm"}))
    assert digest(lower(whole, (X,))) != digest(lower(apart, (X,)))


def test_products_of_integers_are_left() -> None:
    """``addmm`` of integers is not touched."""
    i = torch.ones(2, 2, dtype=torch.int64)
    program = lower(Calls(lambda lin, i: torch.addmm(i, i, i)), (i,), unpack={"addmm"})
    assert operators(program) == ["addmm"]


def test_an_operator_that_cannot_be_unpacked_is_an_error() -> None:
    """The message names it and those that can."""
    with pytest.raises(PreconditionError, match="gelu cannot be unpacked; known: addmm, log_softmax"):
        lower(nn.ReLU(), (X,), unpack={"gelu"})
