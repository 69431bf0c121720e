"""A store in memory, which shows that another kind of store fits in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.errors import ReadOnlyError, UnknownKeyError
from trtcache.store.contract import Entry, Miss, Store, entry_of
from trtcache.store.format import EntryHeader
from trtcache.store.reader import EntryStat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trtcache.digests import CacheKey
    from trtcache.store.format import Content


class MemoryStore(Store):
    """Entries in a dictionary: complete or absent, and gone with the process."""

    def __init__(self, *, writable: bool = True) -> None:
        self.writable = writable
        self._entries: dict[str, tuple[EntryHeader, dict[str, bytes]]] = {}
        self._pins: set[str] = set()

    @property
    def location(self) -> str:
        return f"memory:{id(self)}"

    def contains(self, digest: str) -> bool:
        return digest in self._entries

    def get(self, key: CacheKey) -> Entry | Miss:
        if key.digest not in self._entries:
            return Miss("absent")
        header, contents = self._entries[key.digest]
        if header.key.document != key.document:
            return Miss("collision")
        return entry_of(header, contents, path=None, outcome="hit")

    def put(
        self,
        key: CacheKey,
        contents: Mapping[str, Content],
        *,
        kind: str,
        name: str | None = None,
        build_s: float = 0.0,
        provenance: Mapping[str, str] | None = None,
    ) -> Entry:
        self._require_writable("store an entry")
        data = {member: _bytes(content) for member, content in contents.items()}
        size_bytes = sum(map(len, data.values()))
        header = EntryHeader(key, kind, name, 0, build_s, dict(provenance or {}), (), size_bytes)
        self._entries[key.digest] = header, data
        return entry_of(header, data, path=None, outcome="built")

    def header(self, digest: str) -> EntryHeader:
        if digest not in self._entries:
            raise UnknownKeyError(digest)
        return self._entries[digest][0]

    def stat(self, digest: str) -> EntryStat:
        return EntryStat(digest, self.header(digest).file_bytes, 0, 0)

    def scan(self) -> Iterator[EntryStat]:
        return iter([self.stat(digest) for digest in self._entries])

    def remove(self, digest: str) -> int:
        self._require_writable("remove an entry")
        found = self._entries.pop(digest, None)
        return found[0].file_bytes if found else 0

    def quarantine(self, digest: str, reason: str) -> None:
        self._require_writable("quarantine an entry")
        self._entries.pop(digest, None)

    def pins(self) -> frozenset[str]:
        return frozenset(self._pins)

    def _require_writable(self, action: str) -> None:
        if not self.writable:
            raise ReadOnlyError(self.location, action)


def _bytes(content: Content) -> bytes:
    return content.read_bytes() if isinstance(content, Path) else bytes(content)
