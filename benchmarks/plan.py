"""Memory of a build of TensorRT-RTX, from the model to the stored plan: the most beyond the model itself."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, table
from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    import torch

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

SIZES = {"small": (16, 2500), "large": (23, 5000)}
"""How many square layers, and how wide: 400 MB and 2.3 GB of float32 weights."""

FILE = "file"
"""An ONNX file with as many weights as the small one, in external data."""


def measure(folder: Path, effort: Effort) -> Samples:
    """Return weights, peak memory and seconds of each size, in new processes."""
    figures = []
    for turn in effort.turns():
        for name in (*SIZES, FILE):
            sys.stderr.write(f"  round {turn + 1}: {name}\n")
            taken = child("benchmarks.plan", name, str(folder))
            figures.append({f"{name}.{what}": value for what, value in taken.items()})
    return gathered(figures)


def _model(layers: int, width: int) -> torch.nn.Module:
    from torch import nn

    parts = [part for _ in range(layers) for part in (nn.Linear(width, width, bias=False), nn.ReLU())]
    return nn.Sequential(*parts).eval()


def _build(name: str, folder: str) -> dict[str, float]:
    from benchmarks.timing import timed

    layers, width = SIZES[name]
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        # What is imported and set up once is no part of what a build takes.
        _compile(_model(1, 8), 8, cache)
        model = _model(layers, width)
        weights_bytes = sum(one.nbytes for one in model.parameters())
        before_bytes = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: proc(5)
        _, build_s = timed(lambda: _compile(model, width, cache))
    peak_bytes = _status("VmHWM") - before_bytes
    return {"weights_bytes": weights_bytes, "peak_bytes": peak_bytes, "compile_s": build_s}


def _build_file(folder: str) -> dict[str, float]:
    from benchmarks.timing import timed

    layers, width = SIZES["small"]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        _compile_file(_written(Path(place) / "tiny.onnx", 1, 8), place)
        path = _written(Path(place) / "model.onnx", layers, width)
        before_bytes = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        _, build_s = timed(lambda: _compile_file(path, place))
        weights_bytes = Path(f"{path}.data").stat().st_size
    # The file's own pages are the model here, as the module's weights are above.
    peak_bytes = _status("VmHWM") - before_bytes - weights_bytes
    return {"weights_bytes": weights_bytes, "peak_bytes": peak_bytes, "compile_s": build_s}


def _written(path: Path, layers: int, width: int) -> Path:
    """Write a model of square layers; only one of them is in memory at a time."""
    import numpy as np
    from onnx import TensorProto, helper

    draw, size_bytes = np.random.default_rng(0), width * width * 4
    graph = helper.make_graph(
        [helper.make_node("MatMul", [f"h{at}", f"weight{at}"], [f"h{at + 1}"]) for at in range(layers)],
        "square",
        [helper.make_tensor_value_info("h0", TensorProto.FLOAT, [2, width])],
        [helper.make_tensor_value_info(f"h{layers}", TensorProto.FLOAT, [2, width])],
    )
    with Path(f"{path}.data").open("wb") as data:
        for at in range(layers):
            draw.standard_normal((width, width), "float32").tofile(data)
            stub = TensorProto(name=f"weight{at}", dims=[width, width], data_type=TensorProto.FLOAT)
            stub.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", at * size_bytes), ("length", size_bytes)):
                stub.external_data.add(key=key, value=Path(str(value)).name)
            graph.initializer.append(stub)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


def _compile_file(path: Path, cache: str) -> None:
    import trtcache

    trtcache.compile(path, backend="tensorrt_rtx", target="sm_89", cache=f"{cache}/cache")


def _compile(model: torch.nn.Module, width: int, cache: str) -> None:
    import torch

    import trtcache

    trtcache.compile(model, (torch.ones(2, width),), backend="tensorrt_rtx", target="sm_89", cache=cache)


def _status(field: str) -> int:
    (found,) = re.findall(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found) * 1024


if __name__ == "__main__":
    import json

    name, folder = sys.argv[1:3]
    print(json.dumps(_build_file(folder) if name == FILE else _build(name, folder)))


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    rows = []
    for name, most in (("small", 1.6), ("large", 1.2), ("file", 1.6)):
        weights_bytes, peak_bytes = (median(figures, f"{name}.{what}_bytes") for what in ("weights", "peak"))
        source = "of an ONNX file with external data, " if name == "file" else ""
        what = f"a plan {source}of {weights_bytes / 1e9:.1f} GB of weights, built and stored"
        found = f"{peak_bytes / weights_bytes:.2f} times the weights"
        rows.append(Promise(what, found, f"at most {most} times", peak_bytes <= most * weights_bytes).row)
    text = "The most resident memory beyond the model itself, mapped files included, by TensorRT-RTX on a CPU.\n"
    return "\n".join(["## Memory of a build of a plan\n", text, table(("memory", "found", "promised", "kept"), rows)])
