"""Digests a mapped file in a thread of its own, while others read it."""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from trtcache.digests import Digest

if TYPE_CHECKING:
    import mmap

_POPULATE_READ = 22  # MADV_POPULATE_READ of Linux 5.14: 6 ms for 90 MB, where a fault for each page cost 20
_POPULATED_BYTES = 1 << 24  # meanwhile no other thread gets new memory from the kernel


class Hashing(threading.Thread):
    """Brings a mapped file into memory, where the weights in it are first used, and hashes it if somebody asks."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(name="trtcache-hashing", daemon=True)
        self._memory = memory
        self._decided = threading.Event()
        self._wanted = False
        self._digest: Digest | None = None

    def begin(self) -> None:
        """Hash it as soon as it is in memory."""
        self._wanted = True
        self._decided.set()

    def end(self) -> None:
        """Wait until nobody reads it any more."""
        self._decided.set()
        self.join()

    def result(self) -> Digest:
        """Return its digest, for which this may have to wait."""
        self.begin()
        self.join()
        if self._digest is None:  # it had ended without one
            self._digest = Digest.of(memoryview(self._memory))
        return self._digest

    def run(self) -> None:
        """Bring the pages in and hash them; both let other threads run."""
        start, size_bytes = ctypes.addressof(ctypes.c_char.from_buffer(self._memory)), len(self._memory)
        with suppress(AttributeError):  # a C library without it; the result does not matter
            madvise = ctypes.CDLL(None).madvise
            for at in range(0, size_bytes, _POPULATED_BYTES):
                step = min(_POPULATED_BYTES, size_bytes - at)
                madvise(ctypes.c_void_p(start + at), ctypes.c_size_t(step), _POPULATE_READ)
        self._decided.wait()
        if self._wanted:
            self._digest = Digest.of(memoryview(self._memory))
