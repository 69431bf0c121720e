"""Memory of a build of TensorRT-RTX, from the model to the stored plan: the most beyond the model itself."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.timing import Samples, child, gathered

if TYPE_CHECKING:
    import torch

SIZES = {"small": (16, 2500), "large": (23, 5000)}
"""How many square layers, and how wide: 400 MB and 2.3 GB of float32 weights."""


def measure(folder: Path, rounds: int) -> Samples:
    """Return weights, peak memory and seconds of each size, in new processes."""
    figures = []
    for turn in range(min(rounds, 3)):
        for name in SIZES:
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


def _compile(model: torch.nn.Module, width: int, cache: str) -> None:
    import torch

    import trtcache

    trtcache.compile(model, (torch.ones(2, width),), backend="tensorrt_rtx", target="sm_89", cache=cache)


def _status(field: str) -> int:
    (found,) = re.findall(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found) * 1024


if __name__ == "__main__":
    import json

    print(json.dumps(_build(*sys.argv[1:3])))
