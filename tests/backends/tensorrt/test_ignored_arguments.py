"""Arguments that torch's ONNX ignores: such an operator stays in torch, and none gets a plan with other results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnxruntime
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares the operators that PT2E writes
from torch import nn
from torch.nn import functional as f

import trtcache
from tests.backends.tensorrt.plans import compiled, lowered, onnx_of
from tests.prepare import prepare
from trtcache.errors import PartitionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

q = torch.ops.quantized_decomposed
IMAGE, VOLUME, ROWS = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 4, 6, 8), 5 * torch.randn(4, 9)
WHERE = torch.randint(0, 9, (4, 9))
SCALES, ZEROS = torch.rand(4) + 0.1, torch.zeros(4, dtype=torch.int64)


class Called(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x) + 1


def rounded(x: torch.Tensor, least: int, most: int, dtype: torch.dtype) -> torch.Tensor:
    """Quantise and back."""
    return q.dequantize_per_tensor(q.quantize_per_tensor(x, 0.1, 0, least, most, dtype), 0.1, 0, least, most, dtype)


def rounded_by_tensors(x: torch.Tensor) -> torch.Tensor:
    """Quantise by tensors for all parameters."""
    low, high = torch.tensor(-8), torch.tensor(7)
    return q.quantize_per_tensor.tensor2(x, torch.tensor(0.1), torch.tensor(0), low, high, torch.int8).float()


def rounded_rows(x: torch.Tensor, least: int, most: int) -> torch.Tensor:
    """Quantise and back, with a scale for each row."""
    rows = q.quantize_per_channel(x, SCALES, ZEROS, 0, least, most, torch.int8)
    return q.dequantize_per_channel(rows, SCALES, ZEROS, 0, least, most, torch.int8)


IGNORED: dict[str, tuple[Any, torch.Tensor, str]] = {
    "avg_pool2d": (lambda x: f.avg_pool2d(x, 2, divisor_override=3), IMAGE, "divisor_override=3"),
    "avg_pool3d": (lambda x: f.avg_pool3d(x, 2, divisor_override=3), VOLUME, "divisor_override=3"),
    "mean": (lambda x: x.scatter_reduce(1, WHERE, x, "mean"), ROWS, "reduce=mean"),
    "mean_without_self": (lambda x: x.scatter_reduce(1, WHERE, x, "mean", include_self=False), ROWS, "reduce=mean"),
    "int8_127": (lambda x: rounded(x, -127, 127, torch.int8), ROWS, "quant_min=-127"),
    "int8_4_bits": (lambda x: rounded(x, -8, 7, torch.int8), ROWS, "quant_min=-8"),
    "uint8_4_bits": (lambda x: rounded(x, 0, 15, torch.uint8), ROWS, "quant_max=15"),
    "int8_tensors": (rounded_by_tensors, ROWS, "quant_min="),
    "float8": (lambda x: rounded(x, -448, 448, torch.float8_e4m3fn), ROWS, "quant_min=-448"),
    "bilinear": (
        lambda x: f.interpolate(x, scale_factor=0.37, mode="bilinear", antialias=True),
        IMAGE,
        "scales_h=0.37",
    ),
    "bicubic": (lambda x: f.interpolate(x, scale_factor=0.37, mode="bicubic", antialias=True), IMAGE, "scales_h=0.37"),
}

KEPT: dict[str, tuple[Any, torch.Tensor]] = {
    "avg_pool2d": (lambda x: f.avg_pool2d(x, 2), IMAGE),
    "avg_pool3d": (lambda x: f.avg_pool3d(x, 2, ceil_mode=True), VOLUME),
    "sum": (lambda x: x.scatter_reduce(1, WHERE, x, "sum"), ROWS),
    "amax": (lambda x: x.scatter_reduce(1, WHERE, x, "amax", include_self=False), ROWS),
    "int8": (lambda x: rounded(x, -128, 127, torch.int8), ROWS),
    "uint8": (lambda x: rounded(x, 0, 255, torch.uint8), ROWS),
    "int8_rows": (lambda x: rounded_rows(x, -128, 127), ROWS),
    "int8_rows_4_bits": (lambda x: rounded_rows(x, -8, 7), ROWS),
    "bilinear": (lambda x: f.interpolate(x, size=(3, 4), mode="bilinear", antialias=True), IMAGE),
}


@pytest.mark.parametrize(("function", "x", "words"), IGNORED.values(), ids=IGNORED)
def test_an_operator_whose_argument_would_be_ignored_stays_in_torch(function: Any, x: torch.Tensor, words: str) -> None:
    """The reason names the argument and its value."""
    request = prepare(Called(function), (x,), backend="tensorrt_rtx", target="sm_89")
    (why,) = {one.why for one in request.division.left}
    assert f" ignores {words}" in why


@pytest.mark.parametrize(("function", "x"), KEPT.values(), ids=KEPT)
def test_an_operator_that_is_written_whole_has_an_engine(function: Any, x: torch.Tensor) -> None:
    """Its ONNX computes what torch does."""
    model = Called(function)
    request = prepare(model, (x,), backend="tensorrt_rtx", target="sm_89")
    assert list(request.division.left) == []
    content = onnx_of(lowered(model, (x,))).serialize(())
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"in0": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model(x), rtol=1e-4, atol=1e-4)


def test_such_an_operator_is_reported(tmp_path: Path) -> None:
    """The rest of the program has its plan, unless all of it has to."""
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.AvgPool2d(2, divisor_override=3))
    module = compiled(model, (IMAGE,), tmp_path)
    assert [one.outcome for one in module.report.partitions] == ["built"]
    assert [one.why for one in module.report.left] == [
        "torch's ONNX for aten.avg_pool2d.default ignores divisor_override=3"
    ]
    with pytest.raises(PartitionError, match="divisor_override=3"):
        compiled(model, (IMAGE,), tmp_path, settings=trtcache.Settings(require_full_compilation=True))
