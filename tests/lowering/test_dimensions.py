"""Dimensions makes equal calls equal."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import trtcache
from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from tests.lowering.lowered import outputs
from trtcache.lowering.rewrites.dimensions import Dimensions
from trtcache.lowering.rewriting import arguments

X = torch.randn(2, 3, 4)
IMAGE = torch.randn(2, 3, 8, 8)


def _calls(*functions: object, x: torch.Tensor = X) -> list[list[object]]:
    """Return the arguments of what each function calls last, all but its inputs."""
    model = Calls(lambda _, x: [function(x) for function in functions])  # type: ignore[operator]
    graph = keeps_its_promise(Dimensions(), model, x)
    results = graph.graph_module.graph.output_node().args[0]
    made = [node.args[0] if "getitem" in node.name else node for node in results]  # type: ignore[union-attr]
    return [[node.target, *map(str, arguments(node)[1:])] for node in made]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x.softmax(-1), lambda x: x.softmax(2)),
        (lambda x: x.sum((0, 1)), lambda x: x.sum((-2, 0))),
        (lambda x: x.sum(), lambda x: x.sum((2, 1, 0))),
        (lambda x: x.mean(), lambda x: x.mean((0, 1, 2))),
        (lambda x: x.max(), lambda x: x.amax()),
        (lambda x: x.sum(-1), lambda x: x.sum(2, dtype=torch.float32)),
        (lambda x: x[1:], lambda x: x[1:9]),
        (lambda x: x[:, -2:], lambda x: x[:, 1:3]),
        (lambda x: x[-1], lambda x: x[1]),
        (lambda x: x * 2, lambda x: x * 2.0),
        (lambda x: x > 1, lambda x: x > 1.0),
        (lambda x: x.clamp(0, 1), lambda x: x.clamp(0.0, 1.0)),
        (lambda x: torch.add(x, x, alpha=1.0), lambda x: x + x),
        (lambda x: x.var(-1), lambda x: x.var(2, correction=1)),
        (lambda x: x.flip(0, 1), lambda x: x.flip(-2, -3)),
        (lambda x: torch.ones(2), lambda x: torch.full((2,), 1.0)),
        (lambda x: x.topk(2), lambda x: x.topk(2, dim=2)),
        (lambda x: torch.cat([x, x * 2], -1).flip(0), lambda x: torch.cat([x, x * 2], 2).flip(-3)),
    ],
)
def test_equal_calls_are_equal(one: object, other: object) -> None:
    """Both ways to write it have the same arguments."""
    first, *_ = _calls(one, other)
    assert _calls(one, other).count(first) >= 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: functional.max_pool2d(x, 2), lambda x: functional.max_pool2d(x, (2, 2), (2, 2))),
        (lambda x: functional.avg_pool2d(x, 2, padding=1), lambda x: functional.avg_pool2d(x, [2, 2], 2, [1, 1])),
        (lambda x: functional.conv2d(x, x, stride=1), lambda x: functional.conv2d(x, x, stride=(1, 1), dilation=[1])),
        (
            lambda x: functional.scaled_dot_product_attention(x, x, x),
            lambda x: functional.scaled_dot_product_attention(x, x, x, scale=8**-0.5),
        ),
    ],
)
def test_windows_and_defaults_are_written_out_alike(one: object, other: object) -> None:
    """One number stands for all dimensions of a window, its stride is its size, and a default is left out."""
    first, second = _calls(one, other, x=IMAGE)
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x.softmax(-1), lambda x: x.softmax(1)),
        (lambda x: x.roll((1, 2), (0, 1)), lambda x: x.roll((1, 2), (1, 0))),
        (lambda x: x.sum(-1), lambda x: x.sum(-1, dtype=torch.float64)),
        (lambda x: x[:, :2], lambda x: x[:, :-2]),
        (lambda x: x.var(-1), lambda x: x.var(-1, correction=0)),
    ],
)
def test_other_calls_stay_other(one: object, other: object) -> None:
    """What means something else has other arguments."""
    first, second = _calls(one, other)[-2:]
    assert first != second


def test_numbers_next_to_whole_numbers_stay_whole() -> None:
    """``i * 2`` is of whole numbers and ``i * 2.0`` is not."""
    first, second = _calls(lambda x: x * 2, lambda x: x * 2.0, x=torch.arange(4))
    assert first != second


def test_bounds_of_symbolic_dimensions_are_kept() -> None:
    """The end of a slice that is the end for any size is written once, other bounds stay."""
    model = Calls(lambda _, x: (x[1:] * 2, x[1 : x.shape[0]] * 3, x[-1] * 5, x.sum(-3)))
    graph = keeps_its_promise(
        Dimensions(), model, torch.randn(5, 3, 4), dynamic=({0: DYNAMIC},), calls=[(torch.randn(7, 3, 4),)]
    )
    assert operators(graph).count("slice") >= 2


def test_counting_from_the_end_makes_no_difference() -> None:
    """Only this pass gives a softmax over the last dimension the key of one over the third."""
    only_with("dimensions", Calls(lambda _, x: x.softmax(-1) * 2), Calls(lambda _, x: x.softmax(2) * 2.0), X)


def test_a_scale_of_heads_without_elements_is_unchanged() -> None:
    """There is no default scale for a head of size 0."""
    x = torch.zeros(1, 2, 3, 0)
    ((_, *rest),) = _calls(lambda x: functional.scaled_dot_product_attention(x, x, x, scale=0.5), x=x)
    assert "0.5" in rest


def test_any_and_all_over_no_dimension_are_a_comparison() -> None:
    """They reduce nothing, while Inductor reduces all; without dimensions given they reduce all."""
    assert [call[0] for call in _calls(lambda x: x.any(()), lambda x: (x > 0).any(dim=(), keepdim=True))] == [
        torch.ops.aten.ne.Scalar
    ] * 2
    assert torch.ops.aten.ne.Scalar not in [call[0] for call in _calls(lambda x: x.any(), lambda x: x.any((0, 1)))]


def test_any_of_uint8_has_the_dimensions_of_others() -> None:
    """Its result is cast, and its dimensions count from the front; over no dimension it is a comparison."""
    aten = torch.ops.aten
    functions = (lambda x: x.any(()), lambda x: x.any(-1), lambda x: x.any(2))
    model = Calls(lambda _, x: [function(x) for function in functions])  # type: ignore[no-untyped-call]
    graph = keeps_its_promise(Dimensions(), model, torch.arange(24, dtype=torch.uint8).view(2, 3, 4)).graph_module.graph
    results = graph.output_node().args[0]
    casts = [node.args[0] for node in results]  # type: ignore[union-attr]
    assert [node.target for node in results] == [aten._to_copy.default] * 3  # type: ignore[union-attr]
    assert [(node.target, *arguments(node)[1:]) for node in casts] == [  # type: ignore[union-attr,arg-type]
        (aten.ne.Scalar, 0),
        (aten.any.dim, 2, False),
        (aten.any.dim, 2, False),
    ]


NUMBERS = torch.tensor([2**31 - 1, 16777217, -5], dtype=torch.int32)
EDGES = torch.tensor([0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: 300 ** x.to(torch.uint8), torch.arange(4)),
        (lambda x: (-129) ** x.to(torch.int8), torch.arange(4)),
        (lambda x: (2**40) ** x, NUMBERS % 3),
        (lambda x: torch.bucketize(0.5, x), EDGES),
        (lambda x: torch.bucketize(1, x, right=True, out_int32=True), EDGES),
        (lambda x: torch.bucketize(0.5, x), EDGES.long()),
        (lambda x: torch.searchsorted(x, 1, side="right"), EDGES),
        (lambda x: functional.threshold(x, 0.5, 0.5), NUMBERS),
        (lambda x: functional.threshold(x, 1, 7), NUMBERS),
        (lambda x: functional.threshold(x, 0.5, 0.25), EDGES),
    ],
)
def test_numbers_beside_tensors_are_converted_as_by_torch(function: object, x: torch.Tensor) -> None:
    """Also one that the tensor's dtype does not have; a number that is searched becomes a tensor."""
    program = trtcache.lower(Calls(lambda _, x: function(x)), (x,))  # type: ignore[operator]
    (result,) = outputs(program, x)
    expected = function(x)  # type: ignore[operator]
    assert (result.dtype, result.tolist()) == (expected.dtype, expected.tolist())
    targets = {str(node.target) for node in program.graph_module.graph.nodes}
    assert not targets & {"aten.bucketize.Scalar", "aten.searchsorted.Scalar"}


def test_what_inductor_promotes_in_another_way_is_cast() -> None:
    """Bounds and exponents that vary, powers of a number, and ``any`` of uint8; constants in float calls stay."""
    aten = torch.ops.aten

    class Promoted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            n, small = x.shape[0], x.to(torch.uint8)
            return (
                x.clamp(max=n / 2),
                x.pow(n),
                torch.pow(2, x),
                small.any(),
                x.clamp(max=2.5),
                x.pow(2),
                x.float().pow(n),
            )

    program = trtcache.lower(Promoted(), (torch.arange(6),), dynamic_shapes=({0: torch.export.Dim("n", min=3)},))
    targets = [node.target for node in program.graph_module.graph.nodes if node.op == "call_function"]
    assert targets.count(aten.pow.Tensor_Tensor) == 2
    assert aten.pow.Scalar not in targets
    (clamp, _) = program.graph_module.graph.find_nodes(op="call_function", target=aten.clamp.default)
    assert clamp.args[0].target is aten._to_copy.default
    (truth,) = program.graph_module.graph.find_nodes(op="call_function", target=aten.any.default)
    assert (truth.meta["val"].dtype, next(iter(truth.users)).target) == (torch.bool, aten._to_copy.default)
