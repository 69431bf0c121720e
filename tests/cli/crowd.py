"""A store with many real entries, created fast: each file is written as in a put, but not flushed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trtcache.digests import CacheKey
from trtcache.store.disk import DiskStore
from trtcache.store.format import Draft
from trtcache.store.writer import write_entry_file

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("aot_inductor", "tensorrt", "tensorrt_rtx")


def crowded(root: Path, count: int) -> DiskStore:
    """Return a store at ``root`` with ``count`` entries of three kinds, built over the last ten days."""
    store = DiskStore.open(root)
    now_ns = store.clock_ns()
    for number in range(count):
        created_ns = now_ns - number * 864 * 10**9 // max(1, count // 1000)
        write(
            store,
            Draft(
                key=CacheKey.of(KINDS[number % 3], {"n": number}),
                kind=KINDS[number % 3],
                name=f"model-{number % 50}/block.{number}",
                created_ns=created_ns,
                build_s=number % 300 / 3,
                provenance={"host": "crowd"},
                contents={"artifact": number.to_bytes(8)},
            ),
        )
    return store


def write(store: DiskStore, draft: Draft) -> None:
    """Write one entry in its place without flushing it."""
    path = store.path(draft.key.digest)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_entry_file(fd, draft)
    finally:
        os.close(fd)
