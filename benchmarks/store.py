"""Puts and gets beside ``diskcache``, plain files and zstd; gets by several processes, and of many entries."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

from benchmarks.store_ways import WAYS, content_of
from benchmarks.timing import Samples, child, gathered, per_call_s, timed
from tests.cli.crowd import KINDS, crowded
from trtcache.store.entry import Entry
from trtcache.values import CacheKey

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {"1 KB": 1_000, "2 MB": 2_000_000, "100 MB": 100_000_000, "1 GB": 1_000_000_000}
FEW, MANY = 1_000, 100_000
PROCESS = "benchmarks.store_process"


def measure(folder: Path, rounds: int) -> Samples:
    """Return the seconds of each way and size, which take turns, of hits, and the hits in a second of processes."""
    samples: Samples = {}
    for label, size_bytes in SIZES.items():
        content = content_of(size_bytes)
        for _ in range(rounds if size_bytes < 10**9 else min(3, rounds)):
            for way, kind in WAYS.items():
                made = kind(folder / way, content)
                for what, action in made.actions().items():
                    samples.setdefault(f"{label}.{way}.{what}_s", []).append(timed(action)[1])
                shutil.rmtree(folder / way)
    return samples | _hits(folder, rounds) | _processes(folder, rounds)


def _hits(folder: Path, rounds: int) -> Samples:
    """Return the seconds of a hit in a small and in a large store, which take turns."""
    stores = {count: crowded(folder / f"crowd-{count}", count) for count in (FEW, MANY)}
    chance = random.Random(0)  # noqa: S311  # no secret
    samples: Samples = {}
    for _ in range(rounds):
        for count, store in stores.items():
            numbers = iter([chance.randrange(count) for _ in range(4 * 200 + 1)])

            def hit(store=store, numbers=numbers) -> None:  # type: ignore[no-untyped-def]  # bound now
                number = next(numbers)
                found = store.get(CacheKey.of(KINDS[number % 3], {"n": number}))
                assert isinstance(found, Entry), found

            samples.setdefault(f"hit_of_{count}_s", []).extend(per_call_s(hit, calls=200, batches=4))
    return samples


def _processes(folder: Path, rounds: int) -> Samples:
    """Return how many entries of 2 MB one, four and eight processes take in a second, and in a CPU second."""
    return gathered([child(PROCESS, str(folder / "together")) for _ in range(min(3, rounds))])
