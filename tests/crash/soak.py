"""One of several processes that put, get, prune, verify, list and damage entries of one store for a while.

At the end it prints how many steps it made, and how many files it had open and how much memory it had, early and late.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.errors import StoreError
from trtcache.store.catalog import counters, load_records, plan_prune
from trtcache.store.record import INDEX_NAME

KEYS = 12
LIMIT_BYTES = 80_000


LEAST = 25


def content_of(number: int) -> bytes:
    """Return what entry ``number`` must be."""
    return random.Random(number).randbytes(8000 + 97 * number)


def step(cache: Cache, random_: random.Random) -> None:
    """Do one thing to the store, and check what it gives."""
    number = random_.randrange(KEYS)
    expected = content_of(number)
    entry = cache.get_or_build({"n": number}, lambda: expected, kind="soak")
    assert entry.read() == expected, f"entry {number} has the bytes of something else"
    chance = random_.random()
    if entry.path is not None and chance < 0.1:
        with entry.path.open("r+b") as file:
            file.seek(random_.randrange(8000))
            file.write(b"damage")
    elif chance < 0.13:
        tend(cache, random_)


def tend(cache: Cache, random_: random.Random) -> None:
    """Do what ``trtcache ls``, ``verify``, ``prune`` and ``stats`` do, or lose the index."""
    store = cache.store
    assert store is not None
    what = random_.choice(("list", "verify", "prune", "count", "lose the index"))
    if what == "list":
        load_records(store)
    elif what == "verify":
        for stored in list(store.scan()):
            with suppress(StoreError):  # it is damaged, or gone since
                store.check(stored.digest)
    elif what == "prune":
        plan_prune(load_records(store), now_ns=time.time_ns(), max_size_bytes=LIMIT_BYTES // 2).execute(store)
    elif what == "count":
        counters(store)
    else:
        (store.root / INDEX_NAME).unlink(missing_ok=True)


def state() -> tuple[int, int]:
    """Return how many files are open, and how much memory is in use, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return len(list(Path("/proc/self/fd").iterdir())), resident


def main(root: Path, seed: int, duration_s: float) -> None:
    """Go on for a while, and for ``LEAST`` steps on a machine that is busy."""
    cache = Cache(config=replace(Config.from_environ({}), root=root, max_size_bytes=LIMIT_BYTES))
    random_, begun_s, steps, early = random.Random(seed), time.monotonic(), 0, (0, 0)
    while time.monotonic() < begun_s + duration_s or steps < LEAST:
        if early == (0, 0) and time.monotonic() > begun_s + duration_s / 3:
            early = state()
        try:
            step(cache, random_)
        except FileNotFoundError:
            continue  # the entry that was to be damaged has been pruned
        steps += 1
    sys.stdout.write(json.dumps([steps, *early, *state()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
