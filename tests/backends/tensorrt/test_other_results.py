"""Operators whose ONNX has other results than torch stay in torch, and constants in ONNX are those of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional as f

from tests.backends.tensorrt.operators import Calls, Outcome, examine, run
from tests.backends.tensorrt.operators_evidence import DOCUMENT
from tests.backends.tensorrt.plans import lowered
from tests.keys.operators import Call
from tests.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, COUNTS, BYTES = torch.randn(4, 6), torch.tensor([[1, 2, 0], [3, 0, -1]]), torch.tensor([40, 200]).byte()
STATISTICS = torch.zeros(6), torch.ones(6)

WRONG: dict[str, tuple[Any, tuple[torch.Tensor, ...], str]] = {
    "atan2": (torch.atan2, (torch.zeros(2), torch.tensor([-2.0, 2.0])), "for zero and a negative number"),
    "erfcx": (torch.special.erfcx, (10 + ROWS.abs(),), "for numbers above 9"),
    "batch_norm": (lambda x, *rest: f.batch_norm(x, *rest, training=True), (ROWS, *STATISTICS), "with training=True"),
    "copy": (lambda x, y: x.clone().copy_(y), (ROWS, ROWS[0]), "for tensors of several sizes"),
    "angle": (torch.angle, (COUNTS,), "for integers"),
    "powers": (torch.pow, (COUNTS, -COUNTS), "for zero and a negative number"),
    "left": (lambda x: x << 2, (BYTES,), "for uint8"),
    "right": (torch.bitwise_right_shift, (BYTES, BYTES), "for uint8"),
    "resized": (lambda x: f.interpolate(x, size=(3, 3), mode="bilinear"), (BYTES.expand(1, 1, 2, 2),), "for integers"),
    "elu": (lambda x: torch.ops.aten.elu(x, 1.0, 1.0, 0.5), (ROWS,), "ignores input_scale=0.5"),
}

RIGHT: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "batch_norm": (lambda x, *rest: f.batch_norm(x, *rest), (ROWS, *STATISTICS)),
    "batch_norm_of_the_batch": (lambda x: f.batch_norm(x, None, None, training=True), (ROWS,)),
    "copy": (lambda x, y: x.clone().copy_(y), (ROWS, 2 * ROWS)),
    "angle": (torch.angle, (ROWS,)),
    "power": (lambda x: x**2, (COUNTS,)),
    "powers": (torch.pow, (ROWS.abs(), ROWS)),
    "any": (torch.any, (COUNTS > 0,)),
    "any_of_bytes": (torch.any, (BYTES,)),
    "shift": (lambda x: x << 2, (COUNTS,)),
    "resized": (lambda x: f.interpolate(x, size=(3, 3), mode="bilinear"), (ROWS[None, None],)),
    "nearest": (lambda x: f.interpolate(x, size=(4, 4)), (BYTES.expand(1, 1, 2, 2),)),
    "elu": (lambda x: f.elu(x, 0.3), (ROWS,)),
}


def division(function: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> list[str]:
    """Return why parts of a call stay in torch."""
    request = prepare(Calls(function, [Call(args, {})]), args, backend="tensorrt_rtx", target="sm_89")
    return [one.why for one in request.division.left]


@pytest.mark.parametrize(("function", "args", "words"), WRONG.values(), ids=WRONG)
def test_an_operator_with_other_results_in_onnx_stays_in_torch(
    function: Any, args: tuple[torch.Tensor, ...], words: str
) -> None:
    """The reason says for what."""
    assert any(why.endswith(words) for why in division(function, args))


@pytest.mark.parametrize(("function", "args"), RIGHT.values(), ids=RIGHT)
def test_it_has_an_engine_where_the_results_are_the_same(function: Any, args: tuple[torch.Tensor, ...]) -> None:
    """An operator is not left in torch for more than is wrong."""
    assert division(function, args) == []
    model = Calls(function, [Call(args, {})])
    (found,), (expected,) = run(lowered(model, args), args), model(*args)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


EMPTY = torch.tensor([[3.0, 4.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / (x.norm(dim=1, keepdim=True) + 1e-8),
        lambda x: torch.rsqrt(x * x + 1e-10),
        lambda x: x - 1e-9,
        lambda x: x + torch.tensor(1e-9),
        lambda x: x * 1.000005 * 1e6,
        lambda x: x / 1.000005,
        lambda x: x.sum(1).long() + 1e-12,
        lambda x: x + 0.0,
        lambda x: f.hardswish(x),
        lambda x: f.gelu(x),
    ],
    ids=["norm", "root", "minus", "tensor", "times", "divided", "integers", "zero", "hardswish", "gelu"],
)
def test_small_numbers_are_in_the_onnx_of_a_program(function: Any) -> None:
    """The optimiser of torch.onnx takes what is within 1e-8 of zero for zero: divided by it, a row of zeros is NaN."""
    model = Calls(function, [Call((EMPTY,), {})])
    (found,), (expected,) = run(lowered(model, (EMPTY,)), (EMPTY,)), model(EMPTY)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


SAMPLE = ("atan2", "any", "clamp", "nn.functional.elu", "nn.functional.scaled_dot_product_attention", "where")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_operators_have_torch_s_results_in_onnx(name: str) -> None:
    """A sample of ``make evidence``."""
    found: Outcome = examine(name)
    assert found.different == []
    assert found.equal or found.left


def test_no_operator_differs_in_the_document() -> None:
    """docs/evidence/onnx.md was written after the last find."""
    assert "operators that differ: **0**" in DOCUMENT.read_text()
