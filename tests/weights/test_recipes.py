"""Recipes make engine weights from a model's weights, and are kept as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trtcache.errors import IncompatibleEngineError
from trtcache.weights import recipes
from trtcache.weights.recipes import OPERATORS, Operation, WeightRef, document, evaluate, parse, rename, sources, step

if TYPE_CHECKING:
    from trtcache.weights.recipes import Recipe

NUMBERS = st.integers(-(2**40), 2**40) | st.floats(allow_nan=False)
RECIPES: st.SearchStrategy[Recipe] = st.recursive(
    st.builds(WeightRef, st.integers(0, 9)),
    lambda inner: st.builds(
        Operation,
        st.sampled_from(sorted(OPERATORS)),
        st.lists(inner | NUMBERS | st.lists(st.integers(-1, 9)).map(tuple) | st.just("float32"), max_size=3).map(tuple),
    ),
    max_leaves=6,
)


@given(RECIPES)
def test_a_recipe_survives_json(recipe: Recipe) -> None:
    """What is written as JSON text and read again is the same recipe, to the last bit of its numbers."""
    assert parse(json.loads(json.dumps(document(recipe), allow_nan=False))) == recipe


def test_one_and_one_point_zero_are_told_apart() -> None:
    """The integer 1 and the float 1.0 are different in a document, since they can give different dtypes."""
    assert document(step("add", WeightRef(0), 1)) != document(step("add", WeightRef(0), 1.0))


@pytest.mark.parametrize(
    "written",
    [
        None,
        [],
        {},
        {"slot": "0"},
        {"slot": 0, "more": 1},
        {"op": "exec", "args": []},
        {"op": "add"},
        {"op": "cast", "args": [{"slot": 0}, "os"]},
        {"op": "reshape", "args": [{"slot": 0}, [1, "2"]]},
        {"op": "add", "args": [{"slot": 0}, None]},
    ],
)
def test_an_invalid_recipe_is_refused(written: object) -> None:
    """Unknown operators, dtypes and forms are an error that shows them; nothing else is looked up by name."""
    with pytest.raises(IncompatibleEngineError, match="weight map"):
        parse(written)  # type: ignore[arg-type]  # not JSON of a recipe, on purpose


def test_operators_do_what_torch_does() -> None:
    """Each operator gives torch's result, and together they fold a BatchNorm."""
    weight, var = torch.randn(4, 3), torch.rand(4) + 0.5
    weights: dict[str | int, torch.Tensor] = {0: weight, 1: var, 2: weight.half()}
    scale = step("rsqrt", step("add", WeightRef(1), 1e-5))
    expected = {
        step("mul", WeightRef(0), step("reshape", scale, (-1, 1))): weight / (var + 1e-5).sqrt()[:, None],
        step("permute", WeightRef(0), (1, 0)): weight.t(),
        step("cast", WeightRef(0), "float16"): weight.half(),
        step("div", step("neg", WeightRef(0)), 2.0): -weight / 2,
        step("sqrt", step("sub", WeightRef(1), 0.25)): (var - 0.25).sqrt(),
    }
    for recipe, made in expected.items():
        torch.testing.assert_close(evaluate(recipe, weights), made)


def test_a_source_is_not_copied() -> None:
    """A recipe that is a single weight returns that tensor."""
    weight = torch.randn(3)
    assert evaluate(WeightRef(0), {0: weight}) is weight


def test_sources_are_named_in_order() -> None:
    """Sources come in the order in which they are written, and are rename in that order."""
    recipe = step("add", step("mul", WeightRef("b"), WeightRef("a")), WeightRef("b"))
    assert list(sources(recipe)) == ["b", "a", "b"]
    numbers = {"b": 0, "a": 1}
    assert rename(recipe, lambda name: numbers[str(name)]) == step(
        "add", step("mul", WeightRef(0), WeightRef(1)), WeightRef(0)
    )


def test_a_recipe_reads_as_a_formula() -> None:
    """Operators are printed as calls."""
    assert (
        recipes.text(step("mul", WeightRef(0), step("reshape", WeightRef(1), (-1, 1))))
        == "mul(slot0, reshape(slot1, (-1, 1)))"
    )


SCALE = step("reshape", step("mul", step("rsqrt", step("add", WeightRef(1), 1e-5)), WeightRef(2)), (-1, 1, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "recipe",
    [
        step("mul", WeightRef(0), SCALE),
        step("cast", step("mul", step("cast", WeightRef(0), "float32"), SCALE), "float16"),
        step("div", step("sub", step("permute", WeightRef(3), (2, 0, 1)), step("reshape", WeightRef(0), (7, 5, 3))), 3),
        step("add", step("neg", step("sqrt", WeightRef(4))), WeightRef(0)),
        step("sub", step("mul", WeightRef(1), WeightRef(2)), WeightRef(1)),
        step("reshape", step("mul", WeightRef(0), 2.0), (21, 5)),
        WeightRef(0),
    ],
    ids=["scale", "cast", "permute", "broadcast", "vector", "reshape", "source"],
)
def test_pieces_have_the_bits_of_the_whole(recipe: Recipe, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of a piece, they cover the result once and in order, and arithmetic is done in rows."""
    torch.manual_seed(0)
    shapes = ((7, 5, 3), (7,), (7,), (5, 3, 7), (1, 5, 3))
    brought: list[int] = []

    def bring(_: str | int, tensor: torch.Tensor) -> torch.Tensor:
        brought.append(tensor.numel())
        return tensor

    weights = {index: torch.rand(shape).add(0.1).to(dtype) for index, shape in enumerate(shapes)}
    whole = evaluate(recipe, weights)
    for elements in (1, 40, 1000):
        monkeypatch.setattr(recipes, "_PIECE_ELEMENTS", elements)
        found = list(recipes.pieces(recipe, weights, tuple(whole.shape), bring))
        made = torch.full_like(whole, float("nan"))
        for place, piece in found:
            assert piece.shape == made[place].shape
            made[place] = piece
        assert torch.equal(made, whole)
        alone = (isinstance(recipe, Operation) and recipe.operator == "reshape") or elements >= whole.numel()
        assert (len(found) == 1) == alone
        if recipe == WeightRef(0):
            assert sum(brought) == whole.numel()
            brought.clear()


def test_a_number_is_one_piece() -> None:
    """What has no dimensions has no rows, and what is empty none either."""
    twice = step("mul", WeightRef(0), 2.0)
    assert [one for one, _ in recipes.pieces(twice, {0: torch.tensor(3.0)}, (), lambda _, one: one)] == [...]
    empty = list(recipes.pieces(twice, {0: torch.empty(0, 3)}, (0, 3), lambda _, one: one))
    assert [(place, tuple(piece.shape)) for place, piece in empty] == [(..., (0, 3))]
