"""One process of ``benchmarks.start``: ONNX Runtime with the model that it has optimised before; no torch in it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort


def main(folder: Path) -> dict[str, float]:
    """Open, run, and return the seconds."""
    inputs = dict(np.load(folder / "inputs.npz"))
    began_s = time.perf_counter()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # it is optimised already
    options.log_severity_level = 3
    ort.InferenceSession(str(folder / "optimised.onnx"), options).run(None, inputs)
    ended_s = time.perf_counter()
    return {"call_s": ended_s - began_s, "process_s": time.time() - float(os.environ["BENCHMARK_BEGAN_S"])}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
