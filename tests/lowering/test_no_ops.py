"""NoOps removes what returns what it was given, unless somebody could tell."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.cleanup import NoOps

X = torch.randn(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: x.clone() * 2,
        lambda _, x: x.detach() * 2,
        lambda _, x: functional.dropout(x, 0.5, training=False) * 2,
        lambda _, x: x[:, :] * 2,
        lambda _, x: x.expand(3, -1) * 2,
        lambda _, x: torch.cat([x]) * 2,
        lambda _, x: x.repeat(1, 1) * 2,
        lambda _, x: x.flip([]) * 2,
        lambda _, x: functional.pad(x, (0, 0)) * 2,
        lambda _, x: x.to(torch.float32, copy=True) * 2,
    ],
)
def test_operators_that_return_their_input_are_gone(function: object) -> None:
    """Only the multiplication is left."""
    assert operators(keeps_its_promise(NoOps(), Calls(function), X)) == ["mul"]


def test_a_graph_without_them_is_left_alone() -> None:
    """Casts, slices and expands that change something stay."""
    model = Calls(lambda _, x: (x.half().float()[1:] + x[:, ::2].sum(), x.expand(2, 3, 4) * 2, x.repeat(1, 2) * 2))
    graph = keeps_its_promise(NoOps(), model, X)
    assert operators(graph).count("_to_copy") == 2
    assert {"expand", "repeat", "slice"} <= set(operators(graph))


def test_a_full_slice_of_a_symbolic_size_is_gone() -> None:
    """Whatever the batch, all of it is all of it; half of it is not."""
    model = Calls(lambda _, x: x[: x.shape[0]] * x[:, : x.shape[1]])
    other = torch.randn(7, 4)
    graph = keeps_its_promise(NoOps(), model, X, dynamic=({0: DYNAMIC},), calls=[(other,)])
    assert "slice" not in operators(graph)
    half = Calls(lambda _, x: x[: x.shape[0] // 2] * 2)
    assert "slice" in operators(keeps_its_promise(NoOps(), half, X, dynamic=({0: DYNAMIC},), calls=[(other,)]))


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: x.clone(),
        lambda _, x: x.clone().view(-1),
        lambda _, x: x.clone().split(2, 1)[0],
        lambda _, x: x.t().contiguous(),
        lambda _, x: torch.repeat_interleave(x, 2),
    ],
)
def test_a_copy_that_is_returned_stays(function: object) -> None:
    """A result has memory of its own, in the layout that the model gave it."""
    assert "clone" in operators(keeps_its_promise(NoOps(), Calls(function), X))


def test_a_copy_that_resolves_a_conjugation_stays() -> None:
    """``view_as_real`` and ``view`` to another dtype raise for a tensor that is conjugated or negated lazily."""
    model = Calls(
        lambda model, x: torch.view_as_real(model.w.mH.resolve_conj()) * x, w=torch.randn(3, 2, dtype=torch.cfloat)
    )
    assert "clone" in operators(keeps_its_promise(NoOps(), model, torch.randn(2, 3, 1)))
    model = Calls(lambda _, x: torch.view_as_complex(x).conj().imag.resolve_neg().view(torch.int32) + 1)
    assert "clone" in operators(keeps_its_promise(NoOps(), model, torch.randn(3, 2)))


def test_a_copy_of_what_was_just_computed_is_gone() -> None:
    """Nobody else has the memory of a fresh tensor; where another result shows it, the copy stays."""
    fresh = Calls(lambda _, x: functional.dropout(x * 2, 0.5, training=False))
    assert operators(keeps_its_promise(NoOps(), fresh, X)) == ["mul"]

    def twice(_: object, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y.clone()

    assert operators(keeps_its_promise(NoOps(), Calls(twice), X)) == ["mul", "clone"]


def test_a_copy_for_an_operator_that_reads_strides_stays() -> None:
    """``as_strided`` and a view as another dtype would read other elements."""
    strided = Calls(
        lambda _, x: torch.as_strided(x.t().clone(memory_format=torch.contiguous_format), (4, 3), (3, 1)) + 1
    )
    assert "clone" in operators(keeps_its_promise(NoOps(), strided, X))
    viewed = Calls(lambda _, x: x.t().contiguous().view(torch.int32) + 1)
    assert "clone" in operators(keeps_its_promise(NoOps(), viewed, X))


def test_a_view_behind_a_removed_copy_works() -> None:
    """A view that the copy made possible, also behind other views, becomes a reshape."""
    model = Calls(lambda _, x: x.transpose(0, 1).contiguous()[1:].view(8, 4) * 2)
    graph = keeps_its_promise(NoOps(), model, torch.randn(4, 3, 4))
    assert "clone" not in operators(graph)
    assert "reshape" in operators(graph)


def test_adding_zero_stays() -> None:
    """``-0.0 + 0`` is 0.0."""
    assert operators(keeps_its_promise(NoOps(), Calls(lambda _, x: x + 0), X)) == ["add"]


def test_dropout_in_eval_mode_makes_no_difference() -> None:
    """Only this pass gives a model with dropout and one without it the same key."""
    only_with(
        "no_ops",
        Calls(lambda _, x: functional.dropout(x, training=False).relu() * 2),
        Calls(lambda _, x: x.relu() * 2),
        X,
    )
