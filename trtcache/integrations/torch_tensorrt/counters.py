"""Counters of hits and builds in this process, and their summary at exit."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trtcache.config.units import format_duration

if TYPE_CHECKING:
    from trtcache.store.entry import Entry


@dataclass
class ConversionTally:
    """Counters of one process; a forked child starts at zero."""

    hits: int = 0
    built: int = 0
    uncached: int = 0
    hit_s: float = 0.0
    build_s: float = 0.0
    saved_s: float = 0.0
    pid: int = field(default_factory=os.getpid)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, entry: Entry, took_s: float) -> None:
        """Count an entry; ``took_s`` is the time of its hit, including the key."""
        with self._lock:
            self._reset_after_fork()
            if entry.outcome == "hit":
                self.hits += 1
                self.hit_s += took_s
                self.saved_s += max(0.0, entry.build_s - took_s)
            else:
                self.built += 1
                self.build_s += entry.build_s

    def add_built(self, build_s: float) -> None:
        """Count an engine built in place of a hit."""
        with self._lock:
            self._reset_after_fork()
            self.built += 1
            self.build_s += build_s

    def add_uncached(self) -> None:
        """Count a conversion that bypassed the cache."""
        with self._lock:
            self._reset_after_fork()
            self.uncached += 1

    def _reset_after_fork(self) -> None:
        if self.pid != os.getpid():
            self.hits = self.built = self.uncached = 0
            self.hit_s = self.build_s = self.saved_s = 0.0
            self.pid = os.getpid()

    def line(self) -> str:
        """Return ``14 hits, 0.9 s, 311 s saved`` with builds, or an empty string if nothing happened."""
        if self.pid != os.getpid():
            return ""
        parts = []
        if self.hits:
            saved = format_duration(self.saved_s)
            parts.append(f"{_format_count(self.hits, 'hit')}, {format_duration(self.hit_s)}, {saved} saved")
        if self.built:
            parts.append(f"{self.built} built in {format_duration(self.build_s)}")
        if self.uncached:
            parts.append(f"{self.uncached} not cached")
        return "; ".join(parts)


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
