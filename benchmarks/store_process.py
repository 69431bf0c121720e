"""Several processes take entries of 2 MB from one store: ``python -m benchmarks.store_process ROOT``."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from pathlib import Path

from benchmarks.store_ways import content_of
from trtcache.digests import CacheKey
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore

COUNTS = (1, 4, 8)
DURATION_S = 3.0
ENTRIES = 8


def take(root: str, started: float, results: multiprocessing.Queue[tuple[int, float]]) -> None:
    """Get one entry after another for some seconds, from a moment on; report how many, and their CPU seconds."""
    store = DiskStore.open(root)
    keys = [CacheKey.of("benchmark", {"n": number}) for number in range(ENTRIES)]
    time.sleep(max(0.0, started - time.time()))
    taken, used_s, until_s = 0, time.process_time(), time.monotonic() + DURATION_S
    while time.monotonic() < until_s:
        assert isinstance(store.get(keys[taken % ENTRIES]), Entry)
        taken += 1
    results.put((taken, time.process_time() - used_s))


def main(root: Path) -> None:
    """Print the rates of each number of processes."""
    store = DiskStore.open(root)
    for number in range(ENTRIES):
        store.put(
            CacheKey.of("benchmark", {"n": number}), {"artifact": content_of(2_000_000 + number)}, kind="benchmark"
        )
    figures, context = {}, multiprocessing.get_context("spawn")
    for count in COUNTS:
        results: multiprocessing.Queue[tuple[int, float]] = context.Queue()
        started = time.time() + 0.5 + 0.15 * count
        processes = [context.Process(target=take, args=(str(root), started, results)) for _ in range(count)]
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
        figures[f"processes_{count}_per_s_count"] = sum(taken for taken, _ in found) / DURATION_S
        figures[f"processes_{count}_per_cpu_s_count"] = sum(taken for taken, _ in found) / sum(
            used for _, used in found
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
