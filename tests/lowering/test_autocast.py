"""Autocast: products and convolutions in another precision, by casts that the graph and the weight map show."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from tests.comparing import difference
from tests.lowering.lowered import operators, outputs
from tests.models import Calls, ConvNorm, retrained
from trtcache.errors import PreconditionError, SettingsError
from trtcache.lowering import LoweredProgram, lower
from trtcache.lowering.rewrites.optional import Autocast

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 4)


class Attention(nn.Module):
    """Embedding, attention, norms and pooling: what stays, what is cast and what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(10, 8), nn.LayerNorm(8)
        self.mix, self.out = nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(self.norm(self.table(ids))).chunk(3, -1)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).relu()
        return self.out(mixed + v).softmax(-1)


class Pooled(nn.Module):
    """A convolution with BatchNorm, pooled, and the places of the greatest."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = ConvNorm().eval()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return nn.functional.max_pool2d(self.conv(x), 2, return_indices=True)


def cast(model: nn.Module, *args: torch.Tensor, **options: object) -> LoweredProgram:
    """Lower with autocast to float16."""
    return lower(model.eval(), args, autocast=Autocast("fp16", **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "args"),
    [(Attention(), (torch.arange(6).reshape(2, 3),)), (Pooled(), (torch.randn(1, 3, 8, 8),))],
    ids=["attention", "pooled"],
)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_results_keep_their_dtypes_and_are_near(model: nn.Module, args: tuple[torch.Tensor, ...], dtype: str) -> None:
    """The program answers within the precision it computes in."""
    program = lower(model.eval(), args, autocast=Autocast(dtype))
    made, expected = outputs(program, *args), model(*args)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    assert [one.dtype for one in made] == [one.dtype for one in expected]
    torch.testing.assert_close(made[0], expected[0], rtol=0.03, atol=0.03)


def test_weights_are_cast_by_recipe_and_values_once() -> None:
    """The engine holds a narrow weight that a refit makes, and no weight is cast in a call."""
    program = cast(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), X)
    assert {weight.dtype for weight in program.interface.weights} == {"float16"}
    assert {slot.dtype for slot in program.interface.slots} == {"float32"}
    assert operators(program).count("_to_copy") == 2  # in and out: what is between follows


def test_norms_and_softmax_stay_in_float32() -> None:
    """Only operators with fast kernels are narrowed, and their followers."""
    program = cast(Attention(), torch.arange(6).reshape(2, 3))
    dtypes = {str(node.target): node.meta["val"] for node in program.order if node.op == "call_function"}
    assert dtypes["aten._softmax.default"].dtype is torch.float32
    assert dtypes["aten.native_layer_norm.default"][0].dtype is torch.float32
    assert dtypes["aten.addmm.default"].dtype is torch.float16
    assert dtypes["aten.relu.default"].dtype is torch.float16


def test_an_excluded_operator_stays() -> None:
    """A product that is excluded is computed in float32."""
    program = cast(nn.Linear(4, 4), X, exclude=("aten.addmm",))
    assert {weight.dtype for weight in program.interface.weights} == {"float32"}
    assert "_to_copy" not in operators(program)


def test_another_dtype_than_float32_is_left_alone() -> None:
    """A model that is float64 or whole numbers is as it was."""
    plain = lower(nn.Linear(4, 4).double(), (X.double(),))
    assert operators(cast(nn.Linear(4, 4).double(), X.double())) == operators(plain)


class Growing(nn.Module):
    """A weight that calls change is also a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.state
        self.state += 1
        return y


def test_a_weight_that_calls_change_is_cast_in_the_call() -> None:
    """No recipe may use it, so the slot stays float32 and the graph casts."""
    program = cast(Growing(), X)
    assert {weight.dtype for weight in program.interface.weights} == {"float32"}
    assert operators(program).count("_to_copy") == 3


def test_a_constant_next_to_a_cast_input(interpreter: str, tmp_path: Path) -> None:
    """A constant of the model can stand between placeholders, before or after an input that is cast."""
    constant = torch.arange(4.0)
    for function in (lambda lin, x: lin(x) + constant, lambda lin, x: lin(x + 1) @ torch.eye(4).mul(2)):
        model = Calls(function)
        compiled = trtcache.compile(model, (X,), backend=interpreter, settings={"autocast": "bf16"}, cache=tmp_path)
        assert difference(model(X), compiled(X), tolerance=0.03) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda lin, x: nn.functional.pad(lin(x), (1, 1), value=-1e9),
        lambda lin, x: lin(x).clamp(min=-1000000000, max=0.1),
        lambda lin, x: nn.functional.hardtanh(lin(x), -1e9, 0.1),
        lambda lin, x: (lin(x) + -1e9).softmax(-1),
        lambda lin, x: torch.sub(lin(x), lin(x).relu(), alpha=100000) / 1e5,
    ],
    ids=["pad", "clamp", "hardtanh", "add", "sub"],
)
def test_a_number_beyond_float16_is_used_in_float32(function: Callable[..., torch.Tensor]) -> None:
    """Kernels reject such a number in float16, or it is infinite there."""
    model = Calls(function)
    program = cast(model, X)
    torch.testing.assert_close(outputs(program, X)[0], model(X), rtol=0.03, atol=0.03)


def test_an_infinite_number_is_narrow() -> None:
    """Both dtypes have infinity, and the sizes of a view are not computed with."""
    program = cast(Calls(lambda lin, x: lin(x).clamp(min=-math.inf, max=1)[:, 1:].repeat(1, 2)), X)
    assert operators(program).count("_to_copy") == 2


def test_a_second_run_changes_nothing() -> None:
    """The pass is idempotent."""
    program = cast(Calls(lambda lin, x: lin(x).relu()), X)
    assert not Autocast("fp16")(program.graph_module).modified


def test_an_unknown_dtype_is_refused() -> None:
    """By the pass and by the settings, with what can be named."""
    with pytest.raises(PreconditionError, match="is not one of fp16, bf16"):
        lower(nn.Linear(4, 4), (X,), autocast=Autocast("fp8"))
    with pytest.raises(SettingsError, match="is not one of fp16, bf16"):
        trtcache.Settings(autocast="fp8")
    with pytest.raises(SettingsError, match="expected names"):
        trtcache.Settings(autocast_exclude="aten.mm")


def test_the_setting_is_in_the_key_and_a_refit_casts(interpreter: str, tmp_path: Path) -> None:
    """Each precision is another entry, and other weights go through the recipe."""
    model = nn.Linear(4, 4)
    keys = {
        str(trtcache.key(model, (X,), backend=interpreter, settings={"autocast": one}))
        for one in (None, "fp16", "bf16")
    }
    assert len(keys) == 3
    compiled = trtcache.compile(model, (X,), backend=interpreter, settings={"autocast": "bf16"}, cache=tmp_path)
    other = retrained(copy.deepcopy(model))
    compiled.refit(other)
    assert difference(other(X), compiled(X), tolerance=0.03) is None
