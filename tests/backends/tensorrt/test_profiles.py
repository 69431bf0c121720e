"""Profiles: sizes that vary have the ranges that the caller gave, the example's size as the optimal one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import trtcache
from tests.backends.tensorrt.plans import RTX, Small, compiled, ids, lowered, stored
from trtcache.backends.tensorrt.build import Range, _bounds, ranges_of
from trtcache.errors import ProfileError, SettingsError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_dynamic_size_is_a_profile_of_the_plan(engines: Path) -> None:
    """The plan is built for the minimum and the maximum size, and its facts say so."""
    module = compiled(Small(), (ids(4),), engines, dynamic_shapes=({0: Dim("batch", min=1, max=8)},))
    facts, _ = stored(module, engines)
    assert facts["profiles"] == [[{"name": "in0", "min": [1, 5], "opt": [4, 5], "max": [8, 5]}]]


def test_an_input_says_the_minimum_the_optimal_and_the_maximum_shape(engines: Path) -> None:
    """``trtcache.Input`` gives the same profile as an example tensor and ``dynamic_shapes``, and hits its plan."""
    model = Small()
    one = trtcache.Input(min_shape=(1, 5), opt_shape=(4, 5), max_shape=(8, 5), dtype=torch.int64)
    first = compiled(model, (one,), engines)
    assert stored(first, engines)[0]["profiles"] == [[{"name": "in0", "min": [1, 5], "opt": [4, 5], "max": [8, 5]}]]
    example = ids(4)
    second = compiled(model, (example,), engines, dynamic_shapes=({0: Dim("batch", min=1, max=8)},))
    assert second.report.partitions[0].outcome == "hit"


class Pair(nn.Module):
    """Two inputs, one twice as long as the other."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x]) + y


def test_a_size_that_follows_from_another_has_its_range() -> None:
    """The range of ``2 * n`` is twice that of ``n``, and an input of one shape needs no range."""
    rows = Dim("rows", min=2, max=6)
    program = lowered(Pair(), (torch.ones(3, 2), torch.ones(6, 2)), dynamic_shapes=({0: rows}, {0: 2 * rows}))
    assert ranges_of(program, RTX) == (
        Range("in0", (2, 2), (3, 2), (6, 2)),
        Range("in1", (4, 2), (6, 2), (12, 2)),
    )


class Rest(nn.Module):
    """Two engines: what the first one leaves has a size that falls with one input's and rises with the other's."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[:, y.shape[0] :].relu()


def test_a_difference_of_sizes_has_its_whole_range() -> None:
    """Its ends are those of different ends of the sizes, and the optimum is within them."""
    short, long = Dim("short", min=2, max=8), Dim("long", min=10, max=64)
    program = lowered(Rest(), (torch.ones(1, 10), torch.ones(8)), dynamic_shapes=({1: long}, {0: short}))
    (relu,) = program.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    assert _bounds(relu.meta["val"].shape[1], program, RTX, "in0") == (2, 2, 62)


def test_a_size_without_a_maximum_value_is_an_error_that_says_how_to_give_one() -> None:
    """A plan needs an end of every range."""
    program = lowered(Small(), (ids(4),), dynamic_shapes=({0: Dim("batch", min=1)},))
    with pytest.raises(ProfileError, match=r"input in0 .* has no upper bound; .*max=8"):
        ranges_of(program, RTX)


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"shape": (1,), "min_shape": (1,), "max_shape": (2,)},
        {"min_shape": (1,)},
        {"min_shape": (4,), "max_shape": (2,)},
        {"min_shape": (1,), "opt_shape": (3,), "max_shape": (2,)},
        {"min_shape": (1,), "max_shape": (2, 2)},
        {"min_shape": (1.5, 4), "max_shape": (2, 4)},
        {"shape": 4},
    ],
)
def test_an_input_of_impossible_shapes_is_refused(shapes: dict[str, Any]) -> None:
    """One shape or a range that rises; nothing between."""
    with pytest.raises(SettingsError, match="Input"):
        trtcache.Input(**shapes)  # type: ignore[arg-type]


def test_an_input_works_for_every_backend_and_by_keyword() -> None:
    """Keyword arguments have their ranges too, and what is no Input stays; both ways at once is refused."""
    rows = trtcache.Input(min_shape=(2, 2), opt_shape=(3, 2), max_shape=(6, 2))
    other = trtcache.Input(min_shape=(4, 2), opt_shape=(6, 2), max_shape=(12, 2))
    program = trtcache.lower(Pair(), (rows,), {"y": other})
    assert program.interface.ranges == ((2, 6),)
    assert trtcache.lower(nn.Linear(3, 3), (trtcache.Input((2, 3)),)).interface.ranges == ()
    with pytest.raises(SettingsError, match="give one or the other"):
        trtcache.lower(Pair(), (rows, other), dynamic_shapes=({0: Dim.DYNAMIC}, None))
