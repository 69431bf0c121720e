"""Quantised programs: quantise and dequantise operators reach the network as what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares the operators that PT2E writes
from torch import nn

from tests.backends.tensorrt.plans import compiled, lowered, network_of, onnx_of, stored
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX

if TYPE_CHECKING:
    from pathlib import Path

q = torch.ops.quantized_decomposed
X = torch.randn(2, 4)


def rounded(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Quantise to int8 and back, by the operators that PT2E leaves in a program."""
    eight = q.quantize_per_tensor.default(x, scale, 0, -128, 127, torch.int8)
    return q.dequantize_per_tensor.default(eight, scale, 0, -128, 127, torch.int8)


class FakeQuantised(nn.Module):
    """A linear layer whose input and weight are rounded in the call."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(rounded(x, 0.05), rounded(self.lin.weight, 0.02), self.lin.bias)


class Quantised(nn.Module):
    """A linear layer whose weight is int8, with a scale for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 127, (8, 4), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(8))
        self.register_buffer("zero", torch.zeros(8, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = q.dequantize_per_channel.default(self.weight, self.scale, self.zero, 0, -127, 127, torch.int8)
        return nn.functional.linear(rounded(x, 0.05), weight)


@pytest.mark.parametrize(("model", "pairs"), [(FakeQuantised(), 2), (Quantised(), 1)], ids=["fake", "whole"])
def test_quantised_operators_are_layers_of_the_network(model: nn.Module, pairs: int, engines: Path) -> None:
    """ONNX has QuantizeLinear and DequantizeLinear, the network their layers, and a plan is built."""
    made = onnx_of(lowered(model, (X,)))
    kinds = [node.op_type for node in onnx.load_from_string(made.content).graph.node]
    assert kinds.count("QuantizeLinear") == pairs
    trt, network = TENSORRT_RTX.load(), network_of(made)
    layers = [network.definition.get_layer(place).type for place in range(network.definition.num_layers)]
    assert layers.count(trt.LayerType.QUANTIZE) == pairs
    assert layers.count(trt.LayerType.DEQUANTIZE) == 2
    assert compiled(model, (X,), engines).report.partitions[0].path


def test_weights_of_a_quantised_layer_are_frozen_with_their_reasons(engines: Path) -> None:
    """int8 weights and zero points cannot be refitted by TensorRT, and the plan names them."""
    facts, _ = stored(compiled(Quantised(), (X,), engines), engines)
    reasons = " ".join(facts["weights"]["frozen"].values())
    assert "weight: TensorRT refits weights of floating point only, and this is int8" in reasons
    assert "zero: TensorRT refits weights of floating point only, and this is int64" in reasons
