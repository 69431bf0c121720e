"""Plans for tests: built once for the session, and what is stored with them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import trtcache
from trtcache.backends.onnx_export import to_onnx
from trtcache.backends.tensorrt.build import Network, parse
from trtcache.backends.tensorrt.callbacks import get_logger
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.backends.onnx_operators import OnnxModel
    from trtcache.lowering import LoweredProgram

RTX = "tensorrt_rtx"


class Small(nn.Module):
    """Every way in which a weight reaches a network: a table, a product, a norm, a scale and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 8)
        self.norm = nn.LayerNorm(8)
        self.lin = nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(self.norm(self.table(ids)))) * self.scale


def ids(batch: int = 2, most: int = 12) -> torch.Tensor:
    """Return rows of five numbers of words."""
    return torch.arange(5 * batch).reshape(batch, 5) % most


def compiled(model: nn.Module, args: tuple[Any, ...], root: Path, **options: Any) -> trtcache.CompiledModule:
    """Compile for TensorRT-RTX, for an RTX 40 unless ``target`` says otherwise."""
    return trtcache.compile(model.eval(), args, backend=RTX, cache=root, **{"target": "sm_89", **options})


def stored(module: trtcache.CompiledModule, root: Path) -> tuple[dict[str, Any], int]:
    """Return what is stored about a plan, and the plan's bytes."""
    entry = trtcache.Cache(root).get(module.report.partitions[0].key)
    assert entry is not None
    return json.loads(bytes(entry.read("plan.json"))), len(entry.read("engine"))


def lowered(model: nn.Module, args: tuple[Any, ...], **options: Any) -> LoweredProgram:
    """Lower for TensorRT-RTX."""
    return trtcache.lower(model.eval(), args, backend=RTX, **options)


def onnx_of(program: LoweredProgram) -> OnnxModel:
    """Return a program as ONNX, with its own weights."""
    weights = fit(program.interface.weights, program.state, known=frozenset(program.state), device=program.device)
    return to_onnx(program, RTX, weights=weights)


def network_of(model: OnnxModel) -> Network:
    """Return the parsed network of an ONNX model."""
    trt = TENSORRT_RTX.load()
    logger, ears = get_logger(trt)
    with ears.collect_errors() as errors:
        return parse(trt, TENSORRT_RTX, logger, model, errors)


def constants_of(network: Network) -> set[bytes]:
    """Return the bytes of every array that the network has in it."""
    trt = TENSORRT_RTX.load()
    kinds = {
        trt.LayerType.CONSTANT: (trt.IConstantLayer, ("weights",)),
        trt.LayerType.CONVOLUTION: (trt.IConvolutionLayer, ("kernel", "bias")),
        trt.LayerType.DECONVOLUTION: (trt.IDeconvolutionLayer, ("kernel", "bias")),
        trt.LayerType.SCALE: (trt.IScaleLayer, ("scale", "shift", "power")),
    }
    found = set()
    for place in range(network.definition.num_layers):
        layer = network.definition.get_layer(place)
        if layer.type in kinds:
            layer.__class__, names = kinds[layer.type]
            arrays = [getattr(layer, name) for name in names]
            found |= {np.ascontiguousarray(one).tobytes() for one in arrays if isinstance(one, np.ndarray)}
    return found
