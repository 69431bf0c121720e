"""Refits with a module that holds tensors without registering them: right, or refused."""

from __future__ import annotations

import argparse
import collections
import copy
import functools
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import trtcache
from trtcache.errors import RefitError
from trtcache.lowering.interface import Content
from trtcache.runtime.weight_source import HeldTensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.full((1, 4), 10.0)


class Held(nn.Module):
    """A model with a weight, and an object with a tensor."""

    def __init__(self, make: Callable[[torch.Tensor], Any], use: Callable[[Any], torch.Tensor], value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.use = use
        self.held = make(torch.full((4,), value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale."""
        return x * self.weight * self.use(self.held)


def hidden(tensor: torch.Tensor) -> list[nn.Module]:
    """Return a module with a buffer, in a list."""
    module = nn.Module()
    module.register_buffer("factor", tensor)
    return [module]


def linear(tensor: torch.Tensor) -> nn.Linear:
    """Return a layer with a bias."""
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(tensor)
    return layer


HOLDERS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "a list": (lambda t: [t], lambda held: held[0]),
    "a dict": (lambda t: {"a": t}, lambda held: held["a"]),
    "a deque": (lambda t: collections.deque([t]), lambda held: held[0]),
    "a simple namespace": (lambda t: types.SimpleNamespace(t=t), lambda held: held.t),
    "options": (lambda t: argparse.Namespace(t=t), lambda held: held.t),
    "a user's dict": (lambda t: collections.UserDict(a=t), lambda held: held["a"]),
    "a user's list": (lambda t: collections.UserList([t]), lambda held: held[0]),
    "a chain of dicts": (lambda t: collections.ChainMap({"a": t}), lambda held: held["a"]),
    "a read-only dict": (lambda t: types.MappingProxyType({"a": t}), lambda held: held["a"]),
    "a class": (lambda t: type("Options", (), {"t": t}), lambda held: held.t),
    "an object's class": (lambda t: type("Options", (), {"t": t})(), lambda held: held.t),
    "a closure": (lambda t: lambda: t, lambda held: held()),
    "a default": (lambda t: lambda t=t: t, lambda held: held()),
    "a default of a keyword": (lambda t: lambda *, t=t: t, lambda held: held()),
    "a partial function": (lambda t: functools.partial(torch.mul, t), lambda held: held(1.0)),
    "several values": (lambda t: types.SimpleNamespace(t=torch.stack([t, t])), lambda held: held.t[0]),
    "an array": (lambda t: t.numpy().copy(), torch.from_numpy),
    "an unregistered buffer": (hidden, lambda held: held[0].factor),
    "an unregistered layer": (lambda t: [linear(t)], lambda held: held[0](torch.zeros(4))),
    "the method of a layer": (lambda t: linear(t).forward, lambda held: held(torch.zeros(4))),
    "a layer in a closure": (lambda t: (lambda layer: lambda: layer(torch.zeros(4)))(linear(t)), lambda held: held()),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_another_value_is_refused_and_an_equal_one_is_not(holder: str, interpreter: str, tmp_path: Path) -> None:
    """Wherever the model has it."""
    make, use = HOLDERS[holder]
    compiled = trtcache.compile(Held(make, use, 2.0), (X,), backend=interpreter, cache=tmp_path)
    with pytest.raises(RefitError, match="not registered, and not as in the compiled model"):
        compiled.refit(Held(make, use, 5.0))
    equal = Held(make, use, 2.0)
    with torch.no_grad():
        equal.weight.mul_(3)
    compiled.refit(equal)
    assert torch.equal(compiled(X), equal(X))


class Attributed(dict[object, Any]):
    """A dict with attributes."""


def test_an_item_and_an_attribute_of_one_name_are_two(interpreter: str, tmp_path: Path) -> None:
    """So are a number as a key, and a key without a text at that place."""

    def make(first: float, second: float) -> Held:
        held = Attributed(t=torch.full((4,), first))
        held.t = torch.full((4,), second)  # type: ignore[attr-defined]  # any attribute
        return Held(lambda _: held, lambda one: one["t"] * one.t, 0.0)

    compiled = trtcache.compile(make(2.0, 3.0), (X,), backend=interpreter, cache=tmp_path)
    for first, second in ((5.0, 3.0), (2.0, 5.0)):
        with pytest.raises(RefitError):
            compiled.refit(make(first, second))
    held = HeldTensors.of(nn.Module(), [], [])
    assert held.find_differences(nn.Module()) == ""
    model = nn.Module()
    model.table = {0: torch.ones(4), 1: torch.ones(4), (1,): torch.ones(4)}  # type: ignore[assignment]  # any attribute
    assert len(HeldTensors.of(model, [], [Content.of(X[0])]).contents) == 3


class Two(nn.Module):
    """A model with two constants of one shape in a list."""

    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.scales = [torch.full((4,), first), torch.full((4,), second)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale and shift."""
        return x * self.weight * self.scales[0] + self.scales[1]


@pytest.mark.parametrize("before", [(2.0, 3.0), (2.0, 2.0)])
@pytest.mark.parametrize("after", [(2.0, 3.0), (3.0, 2.0), (2.0, 2.0), (3.0, 3.0)])
def test_constants_are_compared_by_their_places(
    before: tuple[float, float], after: tuple[float, float], interpreter: str, tmp_path: Path
) -> None:
    """Another order is another model."""
    compiled = trtcache.compile(Two(*before), (X,), backend=interpreter, cache=tmp_path)
    other = Two(*after)
    if before == after:
        compiled.refit(other)
        assert torch.equal(compiled(X), other(X))
    else:
        with pytest.raises(RefitError):
            compiled.refit(other)


def test_without_the_compiled_model_what_is_ambiguous_is_refused(interpreter: str, tmp_path: Path) -> None:
    """A file does not say where a constant was."""
    trtcache.export(trtcache.compile(Two(2.0, 3.0), (X,), backend=interpreter, cache=tmp_path), tmp_path / "two.pt2")
    loaded = trtcache.load(tmp_path / "two.pt2", trust="local-file", cache=tmp_path)
    with pytest.raises(RefitError, match="maybe an unregistered tensor of the module"):
        loaded.refit(Two(2.0, 3.0))
    loaded.refit(Two(2.0, 3.0).state_dict())
    assert torch.equal(loaded(X), Two(2.0, 3.0)(X))


class Anchored(nn.Module):
    """A model that holds a part of a weight a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))
        self.anchor = self.weight.detach()[1:3]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply with both."""
        return x @ self.weight + (x @ self.anchor.T).sum()


def test_a_part_of_a_weight_must_be_one_in_the_other_model(interpreter: str, tmp_path: Path) -> None:
    """``copy.deepcopy`` takes them apart; then the copy is trained."""
    model = Anchored()
    compiled = trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path)
    for other in (copy.deepcopy(model), Anchored()):
        compiled.refit(other)  # with equal values, or the same relation
        torch.testing.assert_close(compiled(X), other(X))
    trained = copy.deepcopy(model)
    with torch.no_grad():
        trained.weight.mul_(3)
    with pytest.raises(RefitError, match="anchor"):
        compiled.refit(trained)


class Windowed(nn.Module):
    """A model that holds a part of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.rand(4))
        self.head = self.table[1:3]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale and shift."""
        return x * self.table + self.head.sum()


def test_a_part_of_a_buffer_that_is_assigned_is_refused(interpreter: str, tmp_path: Path) -> None:
    """``load_state_dict(assign=True)`` leaves the old one in the plain attribute."""
    compiled = trtcache.compile(Windowed(), (X,), backend=interpreter, cache=tmp_path)
    other = Windowed()
    other.load_state_dict({"table": torch.ones(4)}, assign=True)
    with pytest.raises(RefitError, match="head"):
        compiled.refit(other)


class Recurrent(nn.Module):
    """An LSTM, which holds its weights in a list as well."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        return self.cell(x)[0]


@pytest.mark.parametrize("assign", [False, True])
def test_weights_in_a_list_that_follows_them_are_no_obstacle(interpreter: str, tmp_path: Path, *, assign: bool) -> None:
    """An LSTM keeps its list up to date."""
    model = Recurrent().eval()
    compiled = trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path)
    other = copy.deepcopy(model)
    other.load_state_dict(Recurrent().state_dict(), assign=assign)
    compiled.refit(other)
    torch.testing.assert_close(compiled(X), other(X))


def test_other_tensors_do_not_matter(interpreter: str, tmp_path: Path) -> None:
    """Neither statistics of another shape, nor what only one of the models has, nor what ``forward`` creates."""

    class Created(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's name
            return super().forward(input) * torch.tensor([1.0, 2.0, 3.0, 4.0])

    model, other = Created(4, 4), Created(4, 4)
    model.losses, other.history = [torch.zeros(3)], {"loss": [torch.ones(7)]}  # type: ignore[assignment]  # any attribute
    compiled = trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path)
    compiled.refit(other)
    torch.testing.assert_close(compiled(X), other(X))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_what_leads_nowhere_is_left_out() -> None:
    """Tensors without memory, arrays of objects, modules of Python, the globals of functions, and cycles."""
    model = nn.Linear(2, 2)
    model.things = [torch.eye(2).to_sparse(), torch.empty(2, device="meta"), np.array([object()]), np, globals()]  # type: ignore[assignment]  # any attribute
    model.things += [nn.UninitializedParameter(), nn.UninitializedBuffer(), torch.nested.nested_tensor([torch.eye(2)])]  # type: ignore[operator]  # a list
    model.things.append(model.things)  # type: ignore[operator]  # a list
    model.things.append(torch.quantize_per_tensor(torch.eye(2), 0.1, 0, torch.qint8))  # type: ignore[operator]  # a list
    held = HeldTensors.of(model, ["weight", "bias"], [Content.of(torch.eye(2))])
    assert (held.parts, {*held.contents.values()}) == ({}, {None})
