"""What code reads without naming it where it is: through modules that are values, and by names that are values."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests import direct
from tests.direct import counting
from tests.direct.package import X
from trtcache.cache import Cache
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.mode import DirectMode, describe
from trtcache.frontends.direct.uses import uses
from trtcache.frontends.direct.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType


def _described(model: torch.nn.Module) -> Any:
    return describe(model, ((X,), {}, None))[1]["model"]


HELD: list[ModuleType] = [counting]


class Reading(torch.nn.Module):
    """Reads a number of another module, in one of several ways."""

    __slots__ = ("gain",)

    def __init__(self, does: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.does, self.kept, self.name, self.gain = does, counting, "COUNT", 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.does(self, x)


WAYS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "kept by the model": lambda self, x: x + self.kept.COUNT,
    "in a list": lambda _, x: x + HELD[0].COUNT,
    "a name that is a value": lambda self, x: x + getattr(counting, self.name),
    "a dictionary": lambda _, x: x + counting.__dict__["COUNT"],
    "absent": lambda _, x: x + getattr(counting, "ABSENT", 0),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_of_a_module_is_noticed(
    way: str, interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unchanged model hits, and another number in the module does not."""
    import trtcache

    model, cache = Reading(WAYS[way]), tmp_path / "cache"
    for _ in range(3):  # the first exports of a process load some of torch
        trtcache.compile(model, (X,), backend=interpreter, cache=cache, direct="on")
    same = DirectMode(model, ((X,), {}, None), Cache(cache), mode="on", name="Reading")
    assert same.find(), same.outcome
    monkeypatch.setattr(counting, "ABSENT" if way == "absent" else "COUNT", 3, raising=False)
    assert not DirectMode(model, ((X,), {}, None), Cache(cache), mode="on", name="Reading").find()


class Twice(torch.nn.Module):
    """A weight that is in a list as well, by which torch.export takes it for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.kept = [self.weight]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.kept[0]


def test_a_weight_outside_its_place_is_known_by_its_values() -> None:
    """A retrained model is another one then; in its place alone it is none."""
    model = Twice()
    before = _described(model)
    model.weight.data.mul_(2)
    assert _described(model) != before
    model.kept.clear()
    alone = _described(model)
    model.weight.data.mul_(2)
    assert _described(model) == alone


def test_a_recurrent_layer_has_its_weights_twice_and_is_retrained_all_the_same() -> None:
    """torch.export knows the lists of torch's own layers."""
    model = torch.nn.LSTM(4, 4)
    before = _described(model)
    for one in model.parameters():
        one.data.mul_(2)
    assert _described(model) == before


def test_a_module_that_is_imported_in_forward_is_followed(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first export imports it, the next process does so before it compares; what it reads there is noticed."""
    import trtcache

    def reading(_: Any, x: torch.Tensor) -> torch.Tensor:
        import tests.direct.counting as apart

        return x + apart.COUNT

    model, cache = Reading(reading), tmp_path / "cache"
    model.kept = None

    def forget() -> None:
        monkeypatch.delitem(sys.modules, "tests.direct.counting", raising=False)
        monkeypatch.delattr(direct, "counting", raising=False)

    forget()
    first = trtcache.compile(model, (X,), backend=interpreter, cache=cache, direct="on").report
    assert first.direct == "miss: no matching manifest"
    forget()
    same = DirectMode(model, ((X,), {}, None), Cache(cache), mode="on", name="Reading")
    assert same.find(), same.outcome
    monkeypatch.setattr(sys.modules["tests.direct.counting"], "COUNT", 3)
    assert not DirectMode(model, ((X,), {}, None), Cache(cache), mode="on", name="Reading").find()


def test_slots_of_a_module_are_attributes() -> None:
    """What a module holds in a slot is in the direct key."""
    model = Reading(WAYS["in a list"])
    before = _described(model)
    model.gain = 2.0
    assert _described(model) != before


class Ordered(OrderedDict[str, int]):
    """One of its own kind."""


def _is_field(name: str, fields: list[Any]) -> bool:
    names = {field.name for field in fields}
    return name in names and name is not None


def _is_key(name: str, pairs: list[tuple[str, int]]) -> bool:
    return name in {key for key, value in pairs if value}


def _first_field(fields: list[Any]) -> str:
    names = {field.name for field in fields}
    return "".join(names)


def _by_position(pairs: list[tuple[str, int]]) -> list[str]:
    return [*{key for key, value in pairs if value}]


def test_only_the_order_of_a_set_that_is_iterated_over_counts() -> None:
    """Membership does not depend on it. From Python 3.12 on, the loop of a comprehension is in the function's code."""
    found = [uses(each.__code__).order for each in (_is_field, _is_key, _first_field, _by_position)]
    assert [bool(order) for order in found] == [False, False, True, True]


def test_order_and_layout_are_described() -> None:
    """An ordered mapping is written in its own order, an array with strides, NumPy's other arrays not at all."""
    one, other = Ordered(a=1, b=2), Ordered(a=1, b=2)
    other.move_to_end("a")
    assert Walk(torch.nn.Identity()).value(one) != Walk(torch.nn.Identity()).value(other)
    array = np.ones((2, 3))
    assert Walk(torch.nn.Identity()).value(array) != Walk(torch.nn.Identity()).value(np.asfortranarray(array))
    with pytest.raises(UnstableError):
        Walk(torch.nn.Identity()).value(np.ones(2).view(np.memmap))


def test_an_import_that_does_not_run_costs_no_hit(interpreter: str, tmp_path: Path) -> None:
    """Models of libraries have many of those, of what need not be installed."""
    import trtcache

    def optional(self: Any, x: torch.Tensor) -> torch.Tensor:
        if self.gain > 1:
            import not_installed_anywhere  # noqa: F401
        return x + 1

    report = trtcache.compile(Reading(optional), (X,), backend=interpreter, cache=tmp_path, direct="on").report
    assert report.direct.startswith("miss")


def test_a_model_that_tries_to_import_what_is_not_there_is_left_alone(interpreter: str, tmp_path: Path) -> None:
    """Its next process could have it."""
    import trtcache

    def optional(_: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            import not_installed_anywhere  # noqa: F401
        except ImportError:
            return x
        return x + 1

    report = trtcache.compile(Reading(optional), (X,), backend=interpreter, cache=tmp_path, direct="on").report
    assert report.direct.startswith("off")
