"""Commutative puts operands in an order that their meaning decides."""

from __future__ import annotations

import operator

import pytest
import torch

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with
from tests.lowering.contract import operators as operators_of
from tests.lowering.graphs import marked
from tests.lowering.lowered import digest, outputs
from trtcache.lowering import lower
from trtcache.lowering.rewrites.arithmetic import Commutative
from trtcache.lowering.stages import Pipeline

X, Y = torch.randn(2, 4), torch.randn(2, 4)
W = torch.randn(4, 4)
SAME = (torch.add, torch.mul, torch.maximum, torch.minimum, torch.eq, torch.ne)
BITS = (operator.and_, operator.or_, operator.xor, torch.logical_and, torch.logical_or, torch.logical_xor)


def _digests(one: torch.nn.Module, other: torch.nn.Module, *args: torch.Tensor, dynamic: object = None) -> set[object]:
    torch.testing.assert_close(one(*args), other(*args), rtol=0, atol=0)
    shapes = None if dynamic is None else (dynamic,)
    return {str(digest(lower(model, args, dynamic_shapes=shapes))) for model in (one, other)}


@pytest.mark.parametrize("function", [*SAME, *BITS])
def test_operands_may_be_crossed(function: object) -> None:
    """Only this pass gives both orders of two operands one key."""
    x, y = (X, Y) if function in SAME else (X > 0, Y > 0)
    one, other = (Calls(lambda _, a, b: function(a, b)), Calls(lambda _, a, b: function(b, a)))
    only_with("commutative", one, other, x, y)


@pytest.mark.parametrize(("function", "mirrored"), [(torch.lt, torch.gt), (torch.le, torch.ge)])
def test_a_comparison_is_read_from_either_side(function: object, mirrored: object) -> None:
    """``a < b`` and ``b > a`` have one key, also where both operands are computed alike from weights."""
    one, other = Calls(lambda _, a, b: function(a, b)), Calls(lambda _, a, b: mirrored(b, a))
    assert len(_digests(one, other, X, Y)) == 1
    weights = {"v": W, "w": W * 2}
    alike = Calls(lambda model, a: function(a @ model.v, a @ model.w), **weights)
    assert len(_digests(alike, Calls(lambda model, a: mirrored(a @ model.w, a @ model.v), **weights), X)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda _, a, b: a.sin() + b.sin(), lambda _, a, b: b.sin() + a.sin()),
        (lambda _, a, b: a.sin() * 2 + a.sin() * 3, lambda _, a, b: a.sin() * 3 + a.sin() * 2),
        (lambda _, a, b: (a + b) * (a - b), lambda _, a, b: (a - b) * (b + a)),
        (lambda _, a, b: a.sin() + b[:1], lambda _, a, b: b[:1] + a.sin()),
        (lambda model, a, b: a.sin() * model.w[:2], lambda model, a, b: model.w[:2] * a.sin()),
        (lambda _, a, b: a.sin() + torch.arange(4.0), lambda _, a, b: torch.arange(4.0) + a.sin()),
        (lambda _, a, b: a.sum(1)[:, None] + b.sum(0), lambda _, a, b: b.sum(0) + a.sum(1)[:, None]),
    ],
)
def test_operands_are_told_apart_by_what_they_use(one: object, other: object) -> None:
    """Numbers, inputs and shapes decide, however deep they lie."""
    assert len(_digests(Calls(one, w=W), Calls(other, w=W), X, Y)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda _, a, b: a - b, lambda _, a, b: b - a),
        (lambda _, a, b: torch.add(a, b, alpha=2), lambda _, a, b: torch.add(b, a, alpha=2)),
        (lambda _, a, b: a < b, lambda _, a, b: b < a),
        (lambda _, a, b: a / b, lambda _, a, b: b / a),
        (
            lambda model, a, b: (a @ model.v + a @ model.w) @ model.v,
            lambda model, a, b: (a @ model.v + a @ model.w) @ b,
        ),
    ],
)
def test_other_programs_stay_two(one: object, other: object) -> None:
    """Where the order or the place of an operand matters there are two keys."""
    digests = {str(digest(lower(Calls(each, v=W, w=W * 2), (W, W * 3)))) for each in (one, other)}
    assert len(digests) == 2


def test_a_result_keeps_its_layout() -> None:
    """Operands that give the result another layout when they are crossed stay."""
    model = Calls(lambda _, a, b: (a.t() + b, b + a.t(), (a.t() * b.t()).sin(), (b.t() * a.t()).cos()))
    program = lower(model, (W, W * 2))
    answers = [one.stride() for one in outputs(program, W, W * 2)]
    assert answers == [one.stride() for one in model(W, W * 2)]
    assert len({node for node in program.order if "add" in str(node.target)}) == 2
    assert len({node for node in program.order if "mul" in str(node.target)}) == 1


def test_complex_numbers_stay() -> None:
    """A product of complex numbers may round otherwise when it is crossed."""
    graph = marked(Calls(lambda _, a, b: b * a), X.to(torch.complex64), Y.to(torch.complex64))
    assert not Pipeline((Commutative(),)).run(graph.graph_module)[0].modified


def test_one_operand_without_dimensions_and_another_dtype_stays() -> None:
    """Torch converts it before the product, or after it if it is the second operand."""
    small, large = torch.full((2,), 0.01, dtype=torch.float16), torch.tensor(1e5, dtype=torch.float64)
    for function in (lambda _, a, b: a * b, lambda _, a, b: b * a):
        model = Calls(function)
        assert torch.equal(outputs(lower(model, (small, large)), small, large)[0], model(small, large))


def test_results_are_kept_with_symbolic_sizes() -> None:
    """Sums of tensors of any batch are crossed and stay what they are."""
    model = Calls(lambda _, a, b: b.sin() + a.sin() * 2, v=W)
    sizes = ({0: DYNAMIC}, {0: DYNAMIC})
    more = (torch.randn(5, 4), torch.randn(5, 4))
    graph = keeps_its_promise(Commutative(), model, X, Y, dynamic=sizes, calls=[more])
    assert operators_of(graph)[-1] == "add"
    crossed = Calls(lambda _, a, b: a.sin() * 2 + b.sin())
    assert len(_digests(model, crossed, X, Y, dynamic=sizes)) == 1


def test_slots_follow_the_order() -> None:
    """Weights are numbered by first use after operands were crossed."""
    one = lower(Calls(lambda model, a: a * model.v + (a @ model.w).sin(), v=torch.randn(4), w=W), (X,))
    other = lower(Calls(lambda model, a: (a @ model.w).sin() + model.v * a, v=torch.randn(4), w=W), (X,))
    assert one.text == other.text
    assert [slot.names for slot in one.interface.slots] == [slot.names for slot in other.interface.slots]
