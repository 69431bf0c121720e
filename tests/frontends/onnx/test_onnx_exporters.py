"""Files as torch's two exporters write them: every weight is known, and the network takes each by name."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import onnx
import pytest
import torch
from torch import nn

from tests.backends.tensorrt.plans import network_of
from tests.frontends.onnx.graphs import canonical
from trtcache.frontends.onnx.file import OnnxFile
from trtcache.frontends.onnx.weights import make_parser_model
from trtcache.lowering.model_state import quiet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


class Block(nn.Module):
    """A convolution with its norm, attention, a layer norm and two linear layers."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.query, self.value = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.last, self.head = nn.LayerNorm(8), nn.Linear(8, 1)
        for one in self.parameters():
            nn.init.normal_(one)  # equal weights, all zeros, would be one initializer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.norm(self.conv(x)).relu().flatten(2).transpose(1, 2)
        scores = torch.softmax(self.query(rows) @ rows.transpose(1, 2) / 8**0.5, -1)
        return self.head(self.last(scores @ self.value(rows)))


def exported(path: Path, seed: int, **how: Any) -> Path:
    """Write a block of a seed into a file."""
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Block(seed).eval(), (torch.ones(1, 3, 4, 4),), str(path), verbose=False, **how)
    return path


@pytest.mark.parametrize("how", [{"dynamo": False}, {"dynamo": True, "external_data": False}], ids=["script", "dynamo"])
def test_every_weight_of_an_exported_model_is_a_slot(tmp_path: Path, how: dict[str, Any]) -> None:
    """A retrained model has the same graph, and none of its weights is a constant there."""
    path = exported(tmp_path / "block.onnx", 0, **how)
    found = canonical(path)
    assert canonical(exported(tmp_path / "retrained.onnx", 1, **how)).digest == found.digest
    floats = {
        one.name for one in onnx.load(path).graph.initializer if one.data_type == onnx.TensorProto.FLOAT and one.dims
    }
    assert {slot.names[0] for slot in found.slots} == floats
    assert len(floats) >= 8
    converted = make_parser_model(OnnxFile(path), found.slots)
    network = network_of(converted)
    assert all(network.definition.mark_weights_refittable(f"w{slot.index}") for slot in found.slots)
