"""What Inductor computes wrongly on a CPU is rewritten; the rest is unchanged."""

from __future__ import annotations

import pytest
import torch

import trtcache
from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, operators
from tests.lowering.graphs import marked
from tests.lowering.lowered import outputs
from trtcache.lowering.rewrites.cpu import EXTREMES
from trtcache.lowering.rewrites.dimensions import Dimensions

BYTES = torch.arange(-60, 60, dtype=torch.int8).view(40, 3)


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


def test_places_and_elements_that_several_use_are_those_of_torch() -> None:
    """After all passes, for a maximum whose elements and places are used twice."""
    model = Calls(lambda _, x: (x.max(0), x.max(0)[0] * 2, x.max(0)[1] + 1, x.max(1)[0].unsqueeze(1)))
    found, expected = outputs(trtcache.lower(model, (BYTES,)), BYTES), model(BYTES)
    for ours, theirs in zip(found, [*expected[0], *expected[1:]], strict=True):
        assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64, torch.float32])
def test_other_extremes_are_unchanged(dtype: torch.dtype) -> None:
    """No cast is added for other dtypes, nor for what takes no extreme of bytes."""
    x = BYTES.to(dtype)
    model = Calls(lambda _, x: (x.amax(0), x.max(0), x.argmin(), x.sum(0)))
    assert "_to_copy" not in operators(keeps_its_promise(Dimensions(), model, x))
    sums = Calls(lambda _, x: (x.sum(), x.sum(0), torch.maximum(x, x[:1])))
    assert "_to_copy" not in operators(keeps_its_promise(Dimensions(), sums, BYTES))


def test_other_devices_are_unchanged() -> None:
    """Elsewhere calls are as they were, so that their programs keep their keys."""
    with torch.device("meta"):
        arguments = (torch.empty(40, 3, dtype=torch.int8),)
    model = Calls(lambda _, x: (x.amax(0), x.argmax()))
    found = operators(marked(model, *arguments))
    graph = marked(model, *arguments)
    Dimensions()(graph.graph_module)
    assert operators(graph) == found
