"""What Inductor computes wrongly on a CPU is rewritten; the rest is unchanged."""

from __future__ import annotations

import math

import pytest
import torch

import trtcache
from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, operators
from tests.lowering.graphs import marked
from tests.lowering.lowered import outputs
from trtcache.lowering.rewrites.cpu import EXTREMES, PRODUCTS
from trtcache.lowering.rewrites.dimensions import Dimensions

aten = torch.ops.aten
BYTES = torch.arange(-60, 60, dtype=torch.int8).view(40, 3)
NUMBERS = torch.tensor([99999992.0, 50331649.0, -7.5, 7.5, 6.0, -6.0, 0.0, -0.0, 1e30, math.inf, math.nan, -1e-40])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.max(), x.min()),
        lambda x: (x.amax((0, 1)), x.amin(-1, keepdim=True)),
        lambda x: x.aminmax(dim=0),
        lambda x: x.max(0),
        lambda x: x.min(-1, keepdim=True),
        lambda x: x.max(1)[0],
        lambda x: x.min(0).indices,
        lambda x: (x.argmax(), x.argmin(0), x.argmax(1, keepdim=True)),
        lambda x: (x.max(), x.max() + 1, x - x.amin(0)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_extremes_of_bytes_are_taken_in_int32(function: object, dtype: torch.dtype) -> None:
    """Their results have the dtype of torch, and so has what follows them."""
    model = Calls(lambda _, x: function(x))  # type: ignore[operator]
    x = BYTES.to(dtype)
    graph = keeps_its_promise(Dimensions(), model, x, dynamic=({0: DYNAMIC},), calls=[(x[:7],)]).graph_module.graph
    calls = [node for node in graph.nodes if node.target in EXTREMES]
    assert calls
    assert {node.args[0].meta["val"].dtype for node in calls} == {torch.int32}


def test_places_of_the_greatest_and_the_least_bool_are_taken_in_int32() -> None:
    """Elements are bool again; ``any`` and ``all`` are unchanged."""
    model = Calls(lambda _, x: (x.max(0), x.min(1), x.amax(), x.any(0), x.all()))
    graph = keeps_its_promise(Dimensions(), model, BYTES > 0).graph_module.graph
    assert {node.args[0].meta["val"].dtype for node in graph.nodes if node.target in EXTREMES} == {torch.int32}
    assert {node.args[0].meta["val"].dtype for node in graph.nodes if node.name in {"any_1", "logical_not"}} == {
        torch.bool
    }


def test_places_and_elements_that_several_use_are_those_of_torch() -> None:
    """After all passes, for a maximum whose elements and places are used twice."""
    model = Calls(lambda _, x: (x.max(0), x.max(0)[0] * 2, x.max(0)[1] + 1, x.max(1)[0].unsqueeze(1)))
    found, expected = outputs(trtcache.lower(model, (BYTES,)), BYTES), model(BYTES)
    for ours, theirs in zip(found, [*expected[0], *expected[1:]], strict=True):
        assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())


def test_products_of_bytes_are_computed_in_int32() -> None:
    """Of whatever is converted to them first; without a dtype they are of int64 already."""
    functions = (lambda x: x.prod(dtype=torch.int8), lambda x: x.prod(0, dtype=torch.uint8), lambda x: x.prod(1))
    model = Calls(lambda _, x: [function(one) for function in functions for one in (x, x > 0, x.float() * 1.5)])  # type: ignore[no-untyped-call]
    graph = keeps_its_promise(Dimensions(), model, BYTES % 5 + 1).graph_module.graph
    calls = [node for node in graph.nodes if node.target in PRODUCTS]
    assert [node.meta["val"].dtype for node in calls] == [torch.int32] * 6 + [torch.int64] * 2 + [torch.float32]


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64, torch.float32])
def test_other_extremes_are_unchanged(dtype: torch.dtype) -> None:
    """No cast is added for other dtypes, nor for what takes no extreme of bytes."""
    x = BYTES.to(dtype)
    model = Calls(lambda _, x: (x.amax(0), x.max(0), x.argmin(), x.sum(0)))
    assert "_to_copy" not in operators(keeps_its_promise(Dimensions(), model, x))
    sums = Calls(lambda _, x: (x.sum(), x.sum(0), torch.maximum(x, x[:1])))
    assert "_to_copy" not in operators(keeps_its_promise(Dimensions(), sums, BYTES))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x % 3,
        lambda x: x % -6.2831855,
        lambda x: x % 0,
        lambda x: x % x.flip(0),
        lambda x: x % x[:1, None],
        lambda x: x % x[0].double(),
        lambda x: x[1] % x.double(),
        lambda x: 2.5 % x,
        lambda x: 7 % x,
        lambda x: x.remainder(x.shape[0]),
        lambda x: x.shape[0] % x,
        lambda x: x.clamp(-9, 9).nan_to_num().int() % 2.5,
        lambda x: x.half() % x.flip(0).half(),
        lambda x: x.bfloat16() % 3,
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_remainders_of_floats_are_made_from_fmod(function: object, dtype: torch.dtype) -> None:
    """The results are torch's to the last bit, with its signs of zero."""
    model, x = Calls(lambda _, x: function(x)), NUMBERS.to(dtype)  # type: ignore[operator]
    program = trtcache.lower(model, (x,), dynamic_shapes=(({0: DYNAMIC},),))
    targets = {str(node.target) for node in program.graph_module.graph.nodes}
    assert targets & {"aten.fmod.Scalar", "aten.fmod.Tensor"}
    assert not any("remainder" in target for target in targets)
    (found,), expected = outputs(program, x), model(x)
    assert found.dtype is expected.dtype
    assert torch.equal(found.nan_to_num(12345), expected.nan_to_num(12345))
    assert torch.equal(found.signbit()[~expected.isnan()], expected.signbit()[~expected.isnan()])


def test_the_pass_makes_remainders_once() -> None:
    """Its result has no remainder, so that nothing is left to change, by a number and by a tensor."""
    model = Calls(lambda _, x: (x % 3, x % -0.5, x % x.flip(0), 3.5 % x, x % x[0].double(), x.long() % 2.5))
    graph = keeps_its_promise(Dimensions(), model, torch.arange(1.0, 9), dynamic=({0: DYNAMIC},))
    assert operators(graph).count("fmod") == 6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_that_halves_are_divided_by_are_halves(dtype: torch.dtype) -> None:
    """As in torch; one that is too large is infinite."""
    model = Calls(lambda _, x: (x % 0.1, x.fmod(0.1), 0.1 % x, x % 1e300))
    graph = keeps_its_promise(Dimensions(), model, torch.arange(1.0, 9).to(dtype)).graph_module.graph
    numbers = [node.args[1] for node in graph.nodes if node.target in {aten.fmod.Scalar, aten.full.default}]
    assert set(numbers) == {torch.tensor(0.1, dtype=dtype).item(), torch.tensor(1e300).to(dtype).item()}


def test_remainders_of_integers_are_unchanged() -> None:
    """Inductor computes them as torch does."""
    model = Calls(lambda _, x: (x % 3, x % x.flip(0), 3 % x))
    assert operators(keeps_its_promise(Dimensions(), model, torch.arange(1, 9))).count("remainder") == 3


def test_other_devices_are_unchanged() -> None:
    """Elsewhere calls are as they were, so that their programs keep their keys."""
    with torch.device("meta"):
        arguments = torch.empty(40, 3, dtype=torch.int8), torch.empty(12)
    model = Calls(lambda _, x, y: (x.amax(0), x.argmax(), y % 3, y % y.flip(0)))
    found = operators(marked(model, *arguments))
    graph = marked(model, *arguments)
    Dimensions()(graph.graph_module)
    assert operators(graph) == found
