"""Make the golden store of the current format: ``python tests/data/make_golden.py DIRECTORY``.

The clock, the name and the provenance are fixed and the members are plain text, so that any change of the bytes is a
change of the format. Stores of past formats stay in ``tests/data`` and are never made again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trtcache import CacheKey, Digest
from trtcache.store.disk import DiskStore

PARTS = {
    "graph": Digest.of(b"a graph"),
    "settings": {"level": 3, "fast": True, "ratio": 0.5, "none": None},
    "toolchain": ["builder", "1.2.3"],
    "raw": b"\x00\xff",
}
CONTENTS = {
    "artifact": b"engine " * 400,
    "empty": b"",
    "weights.json": b'{"0": "weight"}',
}
CREATED_NS = 1_767_225_600_000_000_000


def make(root: Path) -> CacheKey:
    """Make the store in a new directory and return the key of its pinned entry."""
    store = DiskStore.open(root, clock_ns=lambda: CREATED_NS)
    key = CacheKey.of("golden", PARTS)
    provenance = {"host": "golden", "platform": "Linux-x86_64", "python": "3.11.0", "trtcache": "0.1.0"}
    entry = store.put(key, CONTENTS, kind="golden", name="gold", build_s=12.5, provenance=provenance)
    store.pin(key.digest)
    assert entry.path is not None
    os.utime(entry.path, ns=(CREATED_NS, CREATED_NS))
    return key


if __name__ == "__main__":
    sys.stdout.write(f"{make(Path(sys.argv[1])).digest}\n")
