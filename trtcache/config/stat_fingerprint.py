"""What a file system says of a file, by which a file that was read before is known again."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass

SETTLED_NS = 2_000_000_000
"""The coarsest clock of a file system: two writes within it may leave one time."""


@dataclass(frozen=True, slots=True)
class StatFingerprint:
    """Which file it is, its size, and when it was last written to and last changed in any way.

    A program can set the time of a write to any other, but not that of a change.
    """

    device: int
    inode: int
    size_bytes: int
    written_ns: int
    changed_ns: int

    @classmethod
    def of(cls, descriptor: int) -> StatFingerprint:
        """Return the state of an open file.

        Raises:
            OSError: it cannot be had.
        """
        found = os.fstat(descriptor)
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @classmethod
    def read(cls, written: list[int]) -> StatFingerprint:
        """Return the state that ``document`` wrote.

        Raises:
            TypeError: it is none.
        """
        return cls(*map(int, written))

    def document(self) -> list[int]:
        """Return the state as a list of numbers."""
        return list(astuple(self))

    def is_settled(self, read_ns: int) -> bool:
        """Say whether a write after ``read_ns`` shows in the state: the last one is long enough before."""
        return max(self.written_ns, self.changed_ns) + SETTLED_NS < read_ns
