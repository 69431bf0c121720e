"""Puts and gets beside others' caches and plain files; gets by several processes, and of many entries."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

from benchmarks.report import Promise, median, promised, seconds, span, table
from benchmarks.store_ways import content_of, ways
from benchmarks.timing import Samples, child, gathered, per_call_s, timed
from tests.cli.crowd import KINDS, crowded
from trtcache.digests import CacheKey
from trtcache.store.contract import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from benchmarks.effort import Effort
    from benchmarks.report import Figures

SIZES = {"1 KB": 1_000, "2 MB": 2_000_000, "100 MB": 100_000_000, "1 GB": 1_000_000_000}
FEW, MANY = 1_000, 100_000
PROCESS = "benchmarks.store_process"


def measure(folder: Path, effort: Effort) -> Samples:
    """Return the seconds of each way and size, which take turns, of hits, and the hits in a second of processes."""
    samples: Samples = {}
    for label, size_bytes in SIZES.items():
        content = content_of(size_bytes)
        for _ in range(effort.rounds if size_bytes < 10**9 else min(3, effort.rounds)):
            for way, kind in ways().items():
                made = kind(folder / way, content)
                for what, action in made.actions().items():
                    samples.setdefault(f"{label}.{way}.{what}_s", []).append(timed(action)[1])
                shutil.rmtree(folder / way)
    return samples | _hits(folder, effort) | _processes(folder, effort)


def _hits(folder: Path, effort: Effort) -> Samples:
    """Return the seconds of a hit in a small and in a large store, which take turns."""
    stores = {count: crowded(folder / f"crowd-{count}", count) for count in (FEW, MANY)}
    chance = random.Random(0)  # noqa: S311  # no secret
    samples: Samples = {}
    for _ in range(effort.rounds):
        for count, store in stores.items():
            numbers = iter([chance.randrange(count) for _ in range(4 * 200 + 1)])

            def hit(store=store, numbers=numbers) -> None:  # type: ignore[no-untyped-def]  # bound now
                number = next(numbers)
                found = store.get(CacheKey.of(KINDS[number % 3], {"n": number}))
                assert isinstance(found, Entry), found

            samples.setdefault(f"hit_of_{count}_s", []).extend(per_call_s(hit, calls=200, batches=4))
    return samples


def _processes(folder: Path, effort: Effort) -> Samples:
    """Return how many entries of 2 MB one, four and eight processes take in a second, and in a CPU second."""
    return gathered([child(PROCESS, str(folder / "together")) for _ in range(min(3, effort.rounds))])


WAYS = {
    "ours": "ours",
    "torch_tensorrt": "`DiskEngineCache`",
    "diskcache": "`diskcache`",
    "plain": "plain file",
    "zstd": "zstd",
}
"""Name of a way -> what the page calls it."""

_STORE = """\
## The store

One artifact that does not compress, in memory before and after, on the disk of temporary files: medians of {rounds}
rounds ({large_rounds} for 1 GB) in which the ways took turns, with the least and the most. Ours hashes and flushes what
it puts and verifies what it gets; plain files and zstd (level 3) are flushed and not verified; `diskcache` and
torch_tensorrt's `DiskEngineCache` (its own code; with pickle, as it does) do neither. What was put is still in the
system's own memory when it is read. The limit of a get that verifies is a file that is mapped and hashed by BLAKE3 on
all cores.

![Seconds of puts and gets](benchmarks-store.svg)
"""


def section(figures: Figures) -> str:
    """Return what the page says of it."""
    found = {way: label for way, label in WAYS.items() if f"1 GB.{way}.get_s" in figures}
    rows = [
        (f"{what} {label}", *(span(figures[f"{label}.{way}.{what}_s"]) for way in found), _limit(figures, label, what))
        for label in SIZES
        for what in ("put", "get")
    ]
    rounds, large_rounds = (len(figures[f"{label}.ours.get_s"]["values"]) for label in ("1 KB", "1 GB"))
    together = [f"{median(figures, f'processes_{count}_per_s_count'):.0f}" for count in (1, 4, 8)]
    processes = f"1, 4 and 8 processes together get {', '.join(together)} entries of 2 MB in a second.\n"
    absent = [] if "torch_tensorrt" in found else ["`DiskEngineCache` was not there to be measured.\n"]
    return "\n".join(
        [
            _STORE.format(rounds=rounds, large_rounds=large_rounds),
            table(("", *found.values(), "limit"), rows),
            *absent,
            table(("ours, of", *SIZES), _ratios(figures, found)),
            processes,
            promised(*_promises(figures)),
        ]
    )


def _limit(figures: Figures, label: str, what: str) -> str:
    return span(figures[f"{label}.plain.map_and_hash_s"]) if what == "get" else ""


def _ratios(figures: Figures, found: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield how many times as long as the others' ours takes, within this run."""
    for what in ("put", "get"):
        for way in found:
            if way != "ours":
                yield f"{WAYS[way]}, {what}", *(_ratio(figures, label, what, f"{way}.{what}_s") for label in SIZES)
    yield "the limit, get", *(_ratio(figures, label, "get", "plain.map_and_hash_s") for label in SIZES)


def _ratio(figures: Figures, label: str, what: str, other: str) -> str:
    return f"{median(figures, f'{label}.ours.{what}_s') / median(figures, f'{label}.{other}'):.2f}x"


def _promises(figures: Figures) -> Iterator[Promise]:
    get_s, hash_s = median(figures, "1 GB.ours.get_s"), median(figures, "1 GB.plain.get_and_hash_s")
    few_s, many_s = median(figures, "hit_of_1000_s"), median(figures, "hit_of_100000_s")
    four, eight = (median(figures, f"processes_{count}_per_cpu_s_count") for count in (4, 8))
    read = f"get of 1 GB, of the speed of reading and hashing a plain file ({seconds(hash_s)})"
    yield Promise(read, f"{hash_s / get_s:.0%}", "at least 70 %", hash_s >= 0.7 * get_s)
    hits = f"a hit of 100,000 entries ({seconds(many_s)}), of one of 1,000 ({seconds(few_s)})"
    yield Promise(hits, f"{many_s / few_s:.2f}x", "0.8x to 1.2x", 0.8 <= many_s / few_s <= 1.2)
    gets = "gets of 2 MB in a CPU second of one of 8 processes, of one of 4"
    yield Promise(gets, f"{eight / four:.2f}x", "at least 0.9x", eight >= 0.9 * four)
