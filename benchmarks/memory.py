"""The most memory of its own that a process had at a time: anonymous and shared memory, without the files it maps.

A thread looks every millisecond (the kernel keeps a highest value only of all resident memory, mapped files included).
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_POLL_S = 0.001
_STATUS = Path("/proc/self/status")


@dataclass(slots=True)
class Memory:
    """Bytes before, at the most, and afterwards."""

    before_bytes: int
    peak_bytes: int
    after_bytes: int = 0

    @property
    def extra_bytes(self) -> int:
        """How much more there was for a time than both before and afterwards."""
        return max(0, self.peak_bytes - max(self.before_bytes, self.after_bytes))


@contextmanager
def watched() -> Iterator[Memory]:
    """Watch the memory of this process meanwhile."""
    now_bytes = own_bytes()
    memory, stop = Memory(now_bytes, now_bytes), threading.Event()

    def look() -> None:
        while not stop.wait(_POLL_S):
            memory.peak_bytes = max(memory.peak_bytes, own_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield memory
    finally:
        stop.set()
        thread.join()
        memory.after_bytes = own_bytes()


def own_bytes() -> int:
    """Return the resident bytes of this process that are of no file."""
    found = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    return sum(map(int, found)) * 1024
