"""One process of ``benchmarks.start``: the program with its engine, loaded without torch."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import trtcache


def main(folder: Path) -> dict[str, float]:
    """Load, call, and return the seconds."""
    inputs = list(np.load(folder / "plain.npz").values())
    began_s = time.perf_counter()
    program = trtcache.load(folder / "plain.pt2", trust="local-file")
    output = program(*inputs)
    ended_s, process_s = time.perf_counter(), time.time() - float(os.environ["BENCHMARK_BEGAN_S"])
    assert "torch" not in sys.modules
    assert np.array_equal(output, np.load(folder / "plain.npy"))
    calls_s = []
    for _ in range(3):
        start_s = time.perf_counter()
        program(*inputs)
        calls_s.append(time.perf_counter() - start_s)
    return {"call_s": ended_s - began_s, "process_s": process_s, "later_s": min(calls_s)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
