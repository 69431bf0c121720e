"""What was served and built in this process, and the line about it at exit."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trtcache.config.units import format_duration

if TYPE_CHECKING:
    from trtcache.store.entry import Entry


@dataclass
class Tally:
    """Counts, for one process: a forked child begins anew."""

    hits: int = 0
    built: int = 0
    uncached: int = 0
    hit_s: float = 0.0
    build_s: float = 0.0
    saved_s: float = 0.0
    pid: int = field(default_factory=os.getpid)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, entry: Entry, took_s: float) -> None:
        """Count an entry; ``took_s`` is what its hit took, key and all."""
        with self._lock:
            self._begin_anew()
            if entry.outcome == "hit":
                self.hits += 1
                self.hit_s += took_s
                self.saved_s += max(0.0, entry.build_s - took_s)
            else:
                self.built += 1
                self.build_s += entry.build_s

    def add_built(self, build_s: float) -> None:
        """Count an engine that took the place of a hit."""
        with self._lock:
            self._begin_anew()
            self.built += 1
            self.build_s += build_s

    def add_uncached(self) -> None:
        """Count a conversion that went past the cache."""
        with self._lock:
            self._begin_anew()
            self.uncached += 1

    def _begin_anew(self) -> None:
        if self.pid != os.getpid():
            self.hits = self.built = self.uncached = 0
            self.hit_s = self.build_s = self.saved_s = 0.0
            self.pid = os.getpid()

    def line(self) -> str:
        """Return ``14 hits, 0.9 s, 311 s saved``, with what was built, or nothing if nothing was done."""
        if self.pid != os.getpid():
            return ""
        said = []
        if self.hits:
            saved = format_duration(self.saved_s)
            said.append(f"{_counted(self.hits, 'hit')}, {format_duration(self.hit_s)}, {saved} saved")
        if self.built:
            said.append(f"{self.built} built in {format_duration(self.build_s)}")
        if self.uncached:
            said.append(f"{self.uncached} not cached")
        return "; ".join(said)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
