"""Modules of one engine with weights of their own, and which weights an engine has a copy of."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from tests.models import Affine, ConvNorm, KeyValue, Weights
from trtcache.errors import RefitError

if TYPE_CHECKING:
    from pathlib import Path


def test_each_module_keeps_its_own_weights(engines: Path, interpreter: str) -> None:
    """A module made of another with other weights answers with those, and the first one goes on as before."""
    one, other, x = Affine(1.0), Affine(2.0), torch.ones(3, 4)
    first = trtcache.compile(one, (x,), backend=interpreter, cache=engines)
    second = first.with_weights(other.state_dict())
    for compiled, model in ((first, one), (second, other)):
        assert all(map(torch.equal, compiled(x), model(x)))
    first.refit(Affine(3.0))
    assert all(map(torch.equal, second(x), other(x)))


@pytest.mark.parametrize("case", ["plain", "mutated", "recipes"])
def test_a_deep_copy_has_weights_of_its_own(engines: Path, interpreter: str, case: str) -> None:
    """It answers as the first one did then, whatever is put into that later, and it is a part of what is copied."""
    model: nn.Module
    model, args = {
        "plain": (Affine(1.0), (torch.ones(3, 4),)),
        "mutated": (KeyValue().eval(), (torch.ones(3, 4), torch.tensor([1, 3, 4]))),
        "recipes": (ConvNorm().eval(), (torch.ones(1, 3, 4, 4),)),
    }[case]
    first = trtcache.compile(model, args, backend=interpreter, cache=engines)
    pipeline = {"first": first, "again": first}
    copied = copy.deepcopy(pipeline)
    second = copied["first"]
    assert second is copied["again"] is not first
    before, other = copy.deepcopy(model), copy.deepcopy(model)
    with torch.no_grad():
        for one in other.state_dict().values():
            one.mul_(2) if one.is_floating_point() else None
    first.refit(other)
    for _ in range(2):
        torch.testing.assert_close(second(*args), before(*args))
        torch.testing.assert_close(first(*args), other(*args))
    second.refit(other)
    torch.testing.assert_close(second(*args), first(*args))


def test_a_deep_copy_has_only_the_weights(engines: Path, interpreter: str) -> None:
    """Of a weight that is a part of a larger tensor, the part is copied."""
    model, x = Weights(torch.randn(100, 4, 4)[3]), torch.ones(3, 4)
    copied = copy.deepcopy(trtcache.compile(model, (x,), backend=interpreter, cache=engines))
    assert copied.state_dict()["w"].untyped_storage().nbytes() == 64
    assert torch.equal(copied(x), model(x))


def test_weights_that_do_not_fit_make_no_module(engines: Path, interpreter: str) -> None:
    """Weights of another shape are an error, and the first module keeps its own."""
    model, x = Affine(), torch.ones(3, 4)
    compiled = trtcache.compile(model, (x,), backend=interpreter, cache=engines)
    with pytest.raises(RefitError, match="mismatched: a"):
        compiled.with_weights({**model.state_dict(), "a": torch.ones(4, 5)})
    assert all(map(torch.equal, compiled(x), model(x)))


def test_copies_are_told_from_shared_weights(engines: Path, interpreter: str) -> None:
    """Weights in a layout that an engine cannot read, and those that others are made of, are copied; no others."""
    calls: list[tuple[nn.Module, torch.Tensor, set[str]]] = [
        (Affine(), torch.ones(3, 4), set()),
        (Weights(torch.randn(10, 12)[1:5, 2:8]), torch.ones(3, 4), {"w"}),
        (
            ConvNorm().eval(),
            torch.ones(1, 3, 4, 4),
            {"conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"},
        ),
    ]
    for model, x, copied in calls:
        compiled = trtcache.compile(model, (x,), backend=interpreter, cache=engines)
        assert compiled.find_copied(model.state_dict()) == copied
