"""How much a test tries: a fixed sample in ``make test``, all of it in ``make torture``."""

from __future__ import annotations

import os
import re
from pathlib import Path

TORTURE = os.environ.get("TRTCACHE_TORTURE") == "1"
SOON_S = 20.0
"""What ends at once ends within this time on the busiest machine; what hangs or waits to its end does not."""


def tries(quick: int, torture: int) -> int:
    """Return how often a test tries something: ``quick`` times, or ``torture`` times where TRTCACHE_TORTURE=1."""
    return torture if TORTURE else quick


def samples(path: Path) -> list[str]:
    """Return the calls of ``tries`` in a file of tests, as written."""
    return re.findall(r"\btries\([^()]+\)", path.read_text(encoding="utf-8"))


def memory() -> Path | None:
    """Return a file system in memory with room for the files of ``make test``, whose programs may be run.

    On a disk, a third of the time of the store's tests is the wait for ``fsync``, and to remove the files of a run
    takes a minute or two. ``make torture`` writes to the disk, and so does a run with pytest's option ``--basetemp``.
    """
    place, gigabyte = Path("/dev/shm"), 1 << 30  # noqa: S108  # pytest makes a private folder in it
    try:
        system, values = os.statvfs(place), Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:  # not Linux
        return None
    available = re.search(r"MemAvailable:\s+(\d+) kB", values)
    has_room = system.f_bavail * system.f_frsize >= 4 * gigabyte
    has_room = has_room and available is not None and int(available[1]) * 1024 >= 8 * gigabyte
    return place if has_room and os.access(place, os.W_OK) and not system.f_flag & os.ST_NOEXEC else None
