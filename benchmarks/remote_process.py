"""One compile with a remote in a new process: ``python -m benchmarks.remote_process SOURCE OBJECT``.

The cache is imported and open before the clock starts, as it is in a program that compiles several models; the build is
the C compiler. Prints the seconds as JSON, and waits for the upload after that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import trtcache


def main(source: str, output: str) -> None:
    """Get or build the object of a source file."""
    import sqlalchemy  # noqa: F401  # what a build needs

    cache = trtcache.Cache()

    def build() -> bytes:
        subprocess.run(["gcc", "-c", source, "-o", output], check=True)
        return Path(output).read_bytes()

    began_s = time.perf_counter()
    entry = cache.get_or_build({"source": Path(source).read_bytes()}, build, kind="object")
    took_s = time.perf_counter() - began_s
    Path(output).write_bytes(entry.read())
    trtcache.flush(10)
    print(json.dumps({"took_s": took_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
