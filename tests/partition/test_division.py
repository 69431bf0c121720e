"""Where programs are cut, and why."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import trtcache
from tests.partition.parts import SOFTMAX, Attention, Twice, division, double, dynamic, inputs, kinds
from trtcache.errors import PartitionError, SettingsError

X = torch.randn(3, 8)


class Towers(nn.Module):
    """Two inputs, each with layers of its own around a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.left(x).softmax(-1).exp(), self.right(y).softmax(-1).exp()


def test_a_program_without_forced_operators_is_one_engine(interpreter: str) -> None:
    """It takes the way that it took before there were parts."""
    assert division(Attention(), inputs(3), interpreter, {}).is_one_engine


@pytest.mark.parametrize("name", ["aten.softmax.int", "aten.softmax", "aten._softmax.default"])
def test_an_operator_is_forced_by_each_of_its_names(interpreter: str, name: str) -> None:
    """As the model calls it, as all its overloads, and as the lowered program has it."""
    found = division(Attention(), inputs(3), interpreter, {"torch_executed_ops": [name]})
    assert kinds(found) == ["engine", "torch", "engine"]
    (left,) = found.left
    assert left.why == f"torch_executed_ops has {name}"


def test_an_unknown_operator_is_an_error_with_the_nearest_name(interpreter: str) -> None:
    """A name that no operator of the program has is refused."""
    with pytest.raises(SettingsError, match=r"torch_executed_ops 'aten.sofmax'.*did you mean 'aten.softmax'"):
        division(Attention(), inputs(3), interpreter, {"torch_executed_ops": ["aten.sofmax"]})


def test_a_custom_operator_stays_in_torch_by_itself(interpreter: str) -> None:
    """The reason says what would let an engine have it, and that does."""
    found = division(Twice(), (X,), interpreter, {})
    assert kinds(found) == ["engine", "torch", "engine"]
    assert "operator_versions" in found.left[0].why
    declared = {"operator_versions": {"trtcache_parts::double": "1"}}
    assert division(Twice(), (X,), interpreter, declared).is_one_engine


def test_modules_are_forced_with_all_that_is_in_them(interpreter: str) -> None:
    """A module's name in the report is the model's own."""
    found = division(Attention(), inputs(3), interpreter, {"torch_executed_modules": ["out"]})
    assert kinds(found) == ["engine", "torch", "engine"]
    assert {one.module for one in found.left} == {"out"}


class Narrow(nn.Module):
    """Calls a layer inside and outside of autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.other(self.layer(x))
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(y).tanh()


def test_a_module_that_is_called_within_autocast_cannot_be_forced(interpreter: str) -> None:
    """Its operators there lose their module: the name is refused, in place of forcing some calls only."""
    with pytest.raises(SettingsError, match=r"torch_executed_modules 'layer': it is called within torch.autocast"):
        division(Narrow(), (X,), interpreter, {"torch_executed_modules": ["layer"]})
    found = division(Narrow(), (X,), interpreter, {"torch_executed_modules": ["other"]})
    assert {one.module for one in found.left} == {"other"}


def test_parts_that_share_nothing_stay_apart(interpreter: str) -> None:
    """Two towers are four engines, which can be built side by side."""
    found = division(Towers(), (X, X), interpreter, SOFTMAX)
    assert sorted(kinds(found)) == ["engine"] * 4 + ["torch"] * 2


def test_what_is_needed_later_is_computed_later(interpreter: str) -> None:
    """A mask that only the second engine uses is no engine of its own."""

    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return (x * 2).softmax(-1) + (mask == 0).to(x.dtype) * -9.0

    found = division(Masked(), (X, X), interpreter, SOFTMAX)
    assert kinds(found) == ["engine", "torch", "engine"]


def test_no_part_waits_for_itself(interpreter: str) -> None:
    """A value that goes both around and through torch cuts an engine in two."""

    class Around(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = x.exp()
            return made * double(made) + double(double(made) + made)

    found = division(Around(), (X,), interpreter, {})
    for number, part in enumerate(found.parts):
        assert all(getattr(wire, "part", -1) < number for wire in part.takes)
    assert kinds(found).count("engine") == 3


def test_small_blocks_stay_in_torch(interpreter: str) -> None:
    """Views do not count, and a program that is too small has no engine at all."""
    settings = {**SOFTMAX, "min_block_size": 4}
    found = division(Towers(), (X, X), interpreter, settings)
    assert kinds(found) == ["torch", "torch"]
    assert "a block of 1 operator, and min_block_size is 4" in {one.why for one in found.left}
    assert not division(nn.Linear(8, 8), (X,), interpreter, {"min_block_size": 2}).is_one_engine


def test_one_engine_can_be_required(interpreter: str) -> None:
    """The error names what would stay in torch."""
    required = {"require_full_compilation": True}
    assert division(Attention(), inputs(3), interpreter, required).is_one_engine
    with pytest.raises(PartitionError, match=r"aten.softmax.int \(torch_executed_ops has aten.softmax.int\)"):
        division(Attention(), inputs(3), interpreter, {**SOFTMAX, **required})


def test_sizes_go_across_a_cut_by_a_tensor_that_has_them(interpreter: str) -> None:
    """A flattened input does not say what it was flattened from: then a tensor without elements does."""
    settings = {"torch_executed_modules": ["torch.nn.modules.linear.Linear"]}
    found = division(Attention(), inputs(3), interpreter, settings, dynamic_shapes=dynamic())
    for part in found.engines.values():
        assert {0} >= {
            one["sym"] for given in part.program.interface.inputs for one in given.shape if isinstance(one, dict)
        }


def test_a_divided_program_has_no_key_of_its_own(interpreter: str) -> None:
    """The error says where the keys are."""
    with pytest.raises(trtcache.errors.CanonicalizationError, match="3 parts, engines with keys of their own: 2"):
        trtcache.key(Twice(), (X,), backend=interpreter)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"min_block_size": 0}, "is not a positive integer"),
        ({"min_block_size": True}, "is not a positive integer"),
        ({"require_full_compilation": 1}, "is not a boolean"),
        ({"on_build_failure": "eager"}, "expected 'raise' or 'torch'"),
        ({"torch_executed_ops": "aten.add"}, "expected names of operators"),
    ],
    ids=lambda value: next(iter(value)) + repr(next(iter(value.values()))) if isinstance(value, dict) else "",
)
def test_impossible_settings_are_errors(setting: dict[str, object], message: str) -> None:
    """Each message names the setting."""
    with pytest.raises(SettingsError, match=f"settings.{next(iter(setting))}.*{message}"):
        trtcache.Settings.of(setting)


class Drawing(nn.Module):
    """Attention of two inputs, and random numbers on both sides of a cut."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        attended = [nn.functional.scaled_dot_product_attention(one, one, one) for one in (x[None], y[None])]
        first = torch.rand_like(x)
        made = double(x)
        return *attended, first, torch.rand_like(made) + made


def test_random_numbers_are_drawn_in_order(interpreter: str) -> None:
    """What could draw and does not, as attention without dropout, has no order."""
    plain = division(Towers(), (X, X), interpreter, {"torch_executed_ops": ["aten.exp"]})
    assert kinds(plain).count("engine") == 2
    found = division(Drawing(), (X, X), interpreter, {})
    random = [number for number, part in enumerate(found.parts) for node in part.cluster.nodes if "rand" in node.name]
    assert random == sorted(random)
    places = {number for number, part in enumerate(found.parts) for node in part.cluster.nodes if "scaled" in node.name}
    assert len(places) == 2
