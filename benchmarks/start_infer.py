"""One process of ``benchmarks.start``: ``trtcache infer`` as from the shell; its output is compared afterwards."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path

from trtcache_cli.main import cli


def main(folder: Path) -> dict[str, float]:
    """Run the command, and return the seconds."""
    inputs = sorted(folder.glob("plain-*.npy"), key=lambda path: int(path.stem.rpartition("-")[2]))
    arguments = [part for place, path in enumerate(inputs) for part in ("--input", f"{place}={path}")]
    output = folder / f"infer-{os.getpid()}.npy"
    command = ["infer", str(folder / "plain.pt2"), "--trust", "local-file", "--json", "--output", str(output)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli.main([*command, *arguments], standalone_mode=False)
    process_s = time.time() - float(os.environ["BENCHMARK_BEGAN_S"])
    import numpy as np

    found = json.loads(printed.getvalue())
    assert np.array_equal(np.load(output), np.load(folder / "plain.npy"))
    output.unlink()
    return {"call_s": found["load_s"] + found["first_s"], "process_s": process_s}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
