"""One process of a crowd that wants the same entries at the same moments.

Run as ``python -m tests.crash.member ROOT THREADS``. For each round that its input names, all its threads ask for that
round's entry, and a line says when they have it. The builder counts itself in a file, and in rounds that end in
``killed`` the first builder kills its process half way.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from trtcache.cache import Cache
from trtcache.config.environment import Config


def content_of(name: str) -> bytes:
    """Return what the entry of a round must be."""
    return random.Random(name).randbytes(20_000)


def built(root: Path, name: str) -> bytes:
    """Build an entry, or die of it."""
    counter = root.with_name(f"builds-{name}")
    fd = os.open(counter, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, b"begun\n")
    os.close(fd)
    time.sleep(0.005)
    if name.endswith("killed") and counter.read_bytes() == b"begun\n":
        os.kill(os.getpid(), signal.SIGKILL)
    return content_of(name)


def ask(cache: Cache, root: Path, name: str, wrong: list[str]) -> None:
    """Ask for the entry of a round."""
    try:
        if cache.get_or_build({"round": name}, lambda: built(root, name), kind="crowd").read() != content_of(name):
            wrong.append("other bytes")
    except Exception as error:  # noqa: BLE001  # told to the parent
        wrong.append(f"{type(error).__name__}: {error}")


def main(root: Path, count: int) -> None:
    """Take part in each round."""
    cache = Cache(config=replace(Config.from_environ({}), root=root))
    for line in sys.stdin:
        name, wrong = line.strip(), list[str]()
        threads = [threading.Thread(target=ask, args=(cache, root, name, wrong)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sys.stdout.write(f"{'; '.join(wrong) or 'right'}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
