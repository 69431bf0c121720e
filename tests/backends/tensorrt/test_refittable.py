"""Refittable weights: recipes are the network's constants, and what the network does not take is frozen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares the operators that PT2E writes
from onnx import TensorProto, helper
from torch import nn

import trtcache
from tests.backends.tensorrt.plans import Small, compiled, constants_of, ids, lowered, network_of, onnx_of, stored
from tests.keys.architectures import called
from tests.models import retrained
from trtcache.backends.onnx_operators import OnnxModel
from trtcache.backends.tensorrt import build
from trtcache.backends.tensorrt.backend import TensorRTRtx
from trtcache.backends.tensorrt.build import mark_refittable, require_refittable, unmark_refittable
from trtcache.errors import BuildError
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Norms(nn.Module):
    """BatchNorm behind a convolution, in front of everything, behind an activation, and of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.BatchNorm2d(3), nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.conv, self.up = nn.Conv2d(3, 8, 3, bias=False), nn.ConvTranspose2d(8, 8, 2)
        self.flat, self.last, self.lin = nn.BatchNorm1d(8), nn.BatchNorm1d(4), nn.Linear(8, 4)
        for norm in (self.first, self.second, self.third, self.flat, self.last):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.conv(self.first(x))).relu()
        x = self.flat(self.third(self.up(x)).mean((2, 3)).tanh())
        return self.last(self.lin(x))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: (Norms().eval(), (torch.randn(2, 3, 6, 6),)), id="norms"),
        pytest.param(lambda: (Small().eval(), (ids(),)), id="small"),
        pytest.param(lambda: called("resnet"), id="resnet", marks=pytest.mark.slow),
    ],
)
def test_recipes_of_two_sets_of_weights_are_the_networks_constants(
    made: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]],
) -> None:
    """Every engine weight is refittable by name, and each one's bytes are in the network, for either set."""
    model, args = made()
    for one in (model, retrained(model)):
        program = lowered(one, args)
        network = network_of(onnx_of(program))
        support = mark_refittable(network, program.interface, "tensorrt_rtx")
        assert support.frozen == {}
        assert len(support.refittable) == len(program.interface.weights)
        weights = fit(program.interface.weights, program.state, known=frozenset(program.state), device=program.device)
        inside = constants_of(network)
        assert [name for name, one in weights.items() if one.contiguous().numpy().tobytes() not in inside] == []


def test_marks_are_taken_back_for_a_plan_of_one_set_of_weights() -> None:
    """After ``unmark_refittable`` no weight is marked."""
    program = lowered(Small(), (ids(),))
    network = network_of(onnx_of(program))
    support = mark_refittable(network, program.interface, "tensorrt_rtx")
    marked = network.definition.are_weights_marked_refittable
    assert all(marked(name) for name in support.refittable)
    unmark_refittable(network, support)
    assert not any(marked(name) for name in support.refittable)


class Whole(nn.Module):
    """A buffer of whole numbers, saved with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.tensor([1, 2, 3]))
        self.table = nn.Embedding(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table(x + self.offsets)


def test_a_weight_of_whole_numbers_is_frozen_with_its_reason(engines: Path) -> None:
    """TensorRT refits floating point only; the plan says which weight it cannot take, by the model's name."""
    facts, _ = stored(compiled(Whole(), (torch.ones(3, dtype=torch.long),), engines), engines)
    (reason,) = facts["weights"]["frozen"].values()
    assert reason == "offsets: TensorRT refits weights of floating point only, and this is int64"


def test_a_weight_that_the_parser_melts_is_found_out() -> None:
    """A BatchNorm in the ONNX file itself leaves no weight of its names, and these are not refittable."""
    program = lowered(Norms(), (torch.randn(2, 3, 6, 6),))
    names = [one.name for one in program.interface.weights[:4]]
    model = _batch_norm(names)
    support = mark_refittable(network_of(model), program.interface, "tensorrt_rtx")
    assert set(names) <= set(support.frozen)
    assert "no refittable weight of this name" in support.frozen[names[0]]
    with pytest.raises(BuildError, match=r"it is not refittable \(.*'refit': False"):
        require_refittable(support, program.interface, "tensorrt_rtx")


def test_weights_of_whole_numbers_may_be_frozen() -> None:
    """Their values are in the key, so a plan that takes other weights may have them in it."""
    program = lowered(Whole(), (torch.ones(3, dtype=torch.long),))
    support = mark_refittable(network_of(onnx_of(program)), program.interface, "tensorrt_rtx")
    assert len(support.frozen) == 1
    require_refittable(support, program.interface, "tensorrt_rtx")


class Scaled(nn.Module):
    """A product with a weight in eight bits that is scaled in the call, and a sum with one of floats."""

    def __init__(self, dtype: torch.dtype, seed: int = 0) -> None:
        super().__init__()
        values = torch.randn(16, 16, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter((20 * values).to(dtype), requires_grad=False)
        self.bias, self.dtype = nn.Parameter(values[0]), dtype
        self.limits = (-448, 448) if dtype.is_floating_point else (-128, 127)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = torch.ops.quantized_decomposed
        return x @ q.dequantize_per_tensor(self.weight, 0.5, 0, *self.limits, self.dtype) + self.bias


EIGHT_BITS = pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)


@EIGHT_BITS
def test_values_that_a_refittable_plan_contains_are_in_its_key(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights of eight bits are another entry, and other floats alone hit. What needs a GPU is stood in for."""
    options = build._set_options
    monkeypatch.setattr(
        build, "_set_options", lambda trt, config, settings, *, refit: options(trt, config, settings, refit=False)
    )
    monkeypatch.setattr(TensorRTRtx, "_refits_here", lambda *_: True)
    first, other, same = Scaled(dtype), Scaled(dtype, 1), Scaled(dtype)
    same.bias.data.add_(1)
    found = [
        compiled(model, (torch.ones(2, 16),), tmp_path, settings={"tensorrt": {"refit": True}})
        for model in (first, other, same)
    ]
    assert [one.report.partitions[0].outcome for one in found] == ["built", "built", "hit"]
    facts, _ = stored(found[0], tmp_path)
    assert facts["weights"]["refittable"] == ["w0"]
    assert str(dtype).removeprefix("torch.") in facts["weights"]["frozen"]["w1"]


@EIGHT_BITS
def test_a_slot_is_frozen_unless_tensorrt_refits_its_dtype(dtype: torch.dtype) -> None:
    """The key and the refittable weights go by the same dtypes."""
    program = lowered(Scaled(dtype), (torch.ones(2, 16),))
    refit = trtcache.Settings(tensorrt={"refit": True})
    assert [slot.dtype for slot in TensorRTRtx().frozen_slots(program, refit)] == [str(dtype).removeprefix("torch.")]
    support = mark_refittable(network_of(onnx_of(program)), program.interface, "tensorrt_rtx")
    require_refittable(support, program.interface, "tensorrt_rtx")


def test_a_weight_of_eight_bits_from_one_of_floats_is_not_complete() -> None:
    """The key of a refittable plan does not have the values that it is computed from."""
    program = lowered(Scaled(torch.float8_e4m3fn), (torch.ones(2, 16),))
    support = mark_refittable(network_of(onnx_of(program)), program.interface, "tensorrt_rtx")
    floats, eight = program.interface.weights
    other = replace(program.interface, weights=(floats, replace(eight, slots=floats.slots)))
    with pytest.raises(BuildError, match="TensorRT refits weights of bfloat16, float16, float32 only"):
        require_refittable(support, other, "tensorrt_rtx")


def _batch_norm(names: list[str]) -> OnnxModel:
    node = helper.make_node("BatchNormalization", ["in0", *names], ["out0"])
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 4, 4]) for name in ("in0", "out0")]
    values = [helper.make_tensor(name, TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]) for name in names]
    graph = helper.make_graph([node], "norm", shapes[:1], shapes[1:], values)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return OnnxModel(content.SerializeToString(), {}, ("in0",), ("out0",), {})
