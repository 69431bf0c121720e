"""Build the cells of a matrix one after the other in this process: ``python -m benchmarks.warm_process MATRIX``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from trtcache.cache import Cache
from trtcache.compiler import build as building
from trtcache_cli.matrix import read_matrix


def main(path: str) -> None:
    """Build all cells and print how long that took."""
    cells, cache, begin_s = read_matrix(Path(path)).cells, Cache(), time.monotonic()
    for cell in cells:
        backend, target = cell.get("backend"), cell.get("target") or None
        building.build(Path(cell.file), backend=backend, target=target, cache=cache, name=Path(cell.file).stem)
    print(json.dumps({"took_s": time.monotonic() - begin_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
