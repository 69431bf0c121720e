"""Metadata of an entry, available without opening its file: a row of ``trtcache ls``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtcache.store.format import EntryHeader
    from trtcache.store.listing import EntryStat


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the catalog.

    ``file_bytes`` is the size on disk and ``size_bytes`` the uncompressed size of the members. ``used_ns`` is the
    file's modification time, which every hit updates. ``inode`` identifies the file that was read, so a replaced one is
    detected.
    """

    digest: str
    kind: str
    name: str | None
    file_bytes: int
    size_bytes: int
    created_ns: int
    used_ns: int
    build_s: float
    members: int
    inode: int = 0
    pinned: bool = False

    @classmethod
    def of(cls, header: EntryHeader, stored: EntryStat, *, pinned: bool) -> Record:
        """Build the record of the file ``stored`` whose header is ``header``."""
        return cls(
            digest=stored.digest,
            kind=header.kind,
            name=header.name,
            file_bytes=stored.file_bytes,
            size_bytes=header.size_bytes,
            created_ns=header.created_ns,
            used_ns=stored.used_ns,
            build_s=float(header.build_s),
            members=len(header.members),
            inode=stored.inode,
            pinned=pinned,
        )

    def as_json(self) -> dict[str, str | int | float | bool | None]:
        """Return the fields for ``--json`` output; their names are stable."""
        return {
            "key": self.digest,
            "kind": self.kind,
            "name": self.name,
            "file_bytes": self.file_bytes,
            "size_bytes": self.size_bytes,
            "created_ns": self.created_ns,
            "used_ns": self.used_ns,
            "build_s": self.build_s,
            "members": self.members,
            "pinned": self.pinned,
        }
