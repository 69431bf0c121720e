"""Stat fingerprints of files: detect changes without reading the content."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass

SETTLED_NS = 2_000_000_000
"""Worst timestamp granularity of a file system: two writes within it may have the same time."""


@dataclass(frozen=True, slots=True)
class StatFingerprint:
    """Device and inode, size, and the times of the last write and the last inode change.

    A program can set a write time to any value, but not a change time.
    """

    device: int
    inode: int
    size_bytes: int
    written_ns: int
    changed_ns: int

    @classmethod
    def of(cls, descriptor: int) -> StatFingerprint:
        """Return the fingerprint of an open file.

        Raises:
            OSError: ``fstat`` failed.
        """
        status = os.fstat(descriptor)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @classmethod
    def read(cls, written: list[int]) -> StatFingerprint:
        """Parse the list of numbers written by ``document``.

        Raises:
            TypeError: it has another length.
        """
        return cls(*map(int, written))

    def document(self) -> list[int]:
        """Return the fingerprint as a list of numbers."""
        return list(astuple(self))

    def is_settled(self, read_ns: int) -> bool:
        """Return whether any write after ``read_ns`` changes the fingerprint: the last one is sufficiently older."""
        return max(self.written_ns, self.changed_ns) + SETTLED_NS < read_ns
