"""One of several processes that use a store on a hostile file system.

Run as ``python -m tests.crash.guest ROOT SEED N``. It does N things to the store, checks every byte that it is given,
and prints what happened, and which pins it was told were made.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.digests import CacheKey
from trtcache.errors import TrtcacheError
from trtcache.store.catalog import load_records, plan_prune

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore

KEYS = 12
LIMIT_BYTES = 150_000


def key_of(number: int) -> CacheKey:
    """Return the key of entry ``number``."""
    return CacheKey.of("test", {"n": number})


def content_of(number: int) -> bytes:
    """Return what entry ``number`` must be."""
    return random.Random(number).randbytes(9000 + 97 * number)


def tend(store: DiskStore, number: int, pinned: set[int], random_: random.Random) -> str:
    """Pin an entry that is there, or prune; return what was done."""
    if random_.random() < 0.5:
        if store.path(key_of(number).digest).exists():
            store.pin(key_of(number).digest)
            if store.path(key_of(number).digest).exists():  # no other pruned it in between
                pinned.add(number)
        return "pin"
    plan_prune(load_records(store), now_ns=time.time_ns(), max_size_bytes=LIMIT_BYTES // 3).execute(store)
    return "prune"


def main(root: Path, seed: int, count: int) -> None:
    """Go on for so many steps."""
    logging.disable()
    random_, done, pinned = random.Random(seed), Counter[str](), set[int]()
    for step in range(count):
        if step % 10 == 0:
            cache = Cache(config=replace(Config.from_environ({}), root=root, max_size_bytes=LIMIT_BYTES))
        number = random_.randrange(KEYS)
        entry = cache.get_or_build_key(key_of(number), lambda number=number: {"artifact": content_of(number)})  # type: ignore[misc]
        assert entry.read() == content_of(number), f"entry {number} has the bytes of something else"
        done[entry.outcome] += 1
        if cache.store is not None and random_.random() < 0.15:
            with suppress(OSError, TrtcacheError):
                done[tend(cache.store, number, pinned if len(pinned) < 3 else set(), random_)] += 1
    sys.stdout.write(json.dumps([done, sorted(pinned)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
