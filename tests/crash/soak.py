"""One of several processes that put, get, prune and damage entries of one store until they are told to stop."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace
from pathlib import Path

from trtcache.cache import Cache
from trtcache.config import Config

KEYS = 12
LIMIT_BYTES = 80_000


def content_of(number: int) -> bytes:
    """Return what entry ``number`` must be."""
    return random.Random(number).randbytes(8000 + 97 * number)


def step(cache: Cache, random_: random.Random) -> None:
    """Do one thing to the store, and check what it gives."""
    number = random_.randrange(KEYS)
    expected = content_of(number)
    entry = cache.get_or_build({"n": number}, lambda: expected, kind="soak")
    assert entry.read() == expected, f"entry {number} has the bytes of something else"
    if entry.path is not None and random_.random() < 0.1:
        with entry.path.open("r+b") as file:
            file.seek(random_.randrange(8000))
            file.write(b"damage")


def main(root: Path, seed: int, duration_s: float) -> None:
    """Go on for a while."""
    cache = Cache(config=replace(Config.from_environ({}), root=root, max_size_bytes=LIMIT_BYTES))
    random_, until_s, steps = random.Random(seed), time.monotonic() + duration_s, 0
    while time.monotonic() < until_s:
        try:
            step(cache, random_)
        except FileNotFoundError:
            continue  # the entry that was to be damaged has been pruned
        steps += 1
    sys.stdout.write(str(steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
