"""A dropout without effect returns its input, and a change of one is a change of both; a shuffle returns a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

import trtcache
from tests.models import Calls
from trtcache.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(2, 4)


def residual(drop: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return a function with an activation in place after a dropout, and a residual connection around both."""

    def function(_: object, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = x * 3
        active = drop(hidden).relu_()
        return hidden + active, drop(active)

    return function


DROPOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "eval": lambda x: functional.dropout(x, 0.5, training=False),
    "probability 0": lambda x: functional.dropout(x, 0.0, training=True),
    "twice": lambda x: functional.dropout(functional.dropout(x, 0.5, training=False), 0.2, training=False),
    "channels": lambda x: functional.dropout1d(x, 0.5, training=False),
    "alpha": lambda x: functional.alpha_dropout(x, 0.5, training=False),
    "alpha of channels": lambda x: functional.feature_alpha_dropout(x, 0.5, training=False),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_a_change_in_place_after_it_changes_its_input(interpreter: str, engines: Path, name: str) -> None:
    """As in eager torch; torch's decompositions lose it."""
    model = Calls(residual(DROPOUTS[name])).eval()
    program = torch.export.export(model, (X,))
    before = str(program.graph)
    for source, args in ((model, (X,)), (program, ())):
        module = trtcache.compile(source, args, backend=interpreter, cache=engines)
        for found, expected in zip(module(X), model(X), strict=True):
            assert torch.equal(found, expected)
    assert str(program.graph) == before


def test_a_change_of_its_input_changes_its_result(interpreter: str, engines: Path) -> None:
    """Of the caller's tensor as well."""

    def function(_: object, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        same = functional.dropout(x, 0.5, training=False)
        x.add_(1)
        return same * 2, functional.dropout(x, 0.5, training=False) - 1

    model = Calls(function).eval()
    module = trtcache.compile(model, (X.clone(),), backend=interpreter, cache=engines)
    mine, theirs = X.clone(), X.clone()
    for found, expected in zip(module(mine), model(theirs), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", DROPOUTS)
def test_a_result_changes_with_its_input(interpreter: str, engines: Path, name: str) -> None:
    """Whether it is the dropout itself, another one or a view of it, and in a block without gradients."""

    def function(_: object, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = x * 3
        kept = DROPOUTS[name](hidden)
        with torch.no_grad():
            inner = DROPOUTS[name](hidden)
            hidden.relu_()
            twice = inner * 2
        mine = DROPOUTS[name](x)
        x.add_(1)
        return hidden, kept, DROPOUTS[name](kept), kept[0], kept * 2, inner, twice, mine

    model = Calls(function).eval()
    with torch.enable_grad():
        program = torch.export.export(model, (X.clone(),))
    before = program.graph_module.print_readable(print_output=False)
    module = trtcache.compile(program, backend=interpreter, cache=engines)
    assert program.graph_module.print_readable(print_output=False) == before
    mine, theirs = X.clone(), X.clone()
    found, expected = module(mine), model(theirs)
    for one, other in zip((*found, mine), (*expected, theirs), strict=True):
        assert torch.equal(one, other)
    found[1].zero_()  # a result shares memory with the tensor that it is
    assert not found[0].any()


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_shuffled_channels_are_a_copy(interpreter: str, engines: Path, groups: int) -> None:
    """Also if their order stays; torch's decomposition returns a view."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        shuffled = functional.channel_shuffle(x, groups)
        x.add_(1)
        return shuffled

    x = torch.randn(1, 4, 2, 2)
    model = Calls(function).eval()
    program = torch.export.export(model, (x.clone(),))
    before = str(program.graph)
    module = trtcache.compile(program, backend=interpreter, cache=engines)
    assert str(program.graph) == before
    mine, theirs = x.clone(), x.clone()
    assert torch.equal(module(mine), model(theirs))
    assert torch.equal(mine, theirs)


def test_a_native_dropout_that_torch_takes_for_its_input_is_refused(interpreter: str, engines: Path) -> None:
    """Its kernel returns a copy, and a change in place is lost; without one it is compiled."""

    def function(_: object, x: torch.Tensor, change: bool) -> torch.Tensor:
        same, _mask = torch.native_dropout(x * 2, 0.5, False)
        return same.relu_() if change else same.relu()

    model = Calls(function).eval()
    with pytest.raises(ExportError, match=r"native_dropout.*functional\.dropout"):
        trtcache.compile(model, (X, True), backend=interpreter, cache=engines)
    module = trtcache.compile(model, (X, False), backend=interpreter, cache=engines)
    assert torch.equal(module(X, False), model(X, False))
