"""The tests that every kind of store has to pass, and a store in memory to show that another kind fits in.

Derive a class from ``StoreContract`` and give it a fixture ``store``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trtcache.digests import CacheKey
from trtcache.errors import ReadOnlyError, UnknownKeyError
from trtcache.store.contract import Miss, Store
from trtcache.store.entry import Entry, entry_of
from trtcache.store.format import EntryHeader
from trtcache.store.reading import EntryStat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trtcache.store.format import Content

KEY, OTHER = CacheKey.of("test", {"n": 1}), CacheKey.of("test", {"n": 2})
CONTENTS = {"engine": b"plan" * 1000, "interface.json": b"{}"}


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


class StoreContract:
    """What a store does, whatever it is made on."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty writable store."""
        raise NotImplementedError

    def test_an_entry_reads_back_as_it_was_put(self, store: Store) -> None:
        """Members, kind, name, seconds and provenance; ``put`` returns ``built`` and ``get`` a ``hit``."""
        put = store.put(KEY, CONTENTS, kind="test", name="model", build_s=42.0, provenance={"torch": "2"})
        assert (put.outcome, put.members) == ("built", tuple(CONTENTS))
        found = store.get(KEY)
        assert isinstance(found, Entry)
        assert {name: bytes(found.read(name)) for name in found.members} == CONTENTS
        described = (found.outcome, found.kind, found.name, found.build_s, found.provenance, found.key.document)
        assert described == ("hit", "test", "model", 42.0, {"torch": "2"}, KEY.document)

    def test_a_file_can_be_a_member(self, store: Store, tmp_path: Path) -> None:
        """A build's file is read when it is put."""
        (tmp_path / "plan").write_bytes(b"from a file")
        store.put(KEY, {"engine": tmp_path / "plan"}, kind="test")
        (tmp_path / "plan").unlink()
        found = store.get(KEY)
        assert isinstance(found, Entry)
        assert bytes(found.read("engine")) == b"from a file"

    def test_an_absent_entry_is_a_miss(self, store: Store) -> None:
        """It has no header and no size, and removing it frees nothing."""
        store.put(OTHER, CONTENTS, kind="test")
        assert store.get(KEY) == Miss("absent")
        assert not store.contains(KEY.digest)
        for look in (store.header, store.stat):
            with pytest.raises(UnknownKeyError):
                look(KEY.digest)
        assert store.remove(KEY.digest) == 0
        store.quarantine(KEY.digest, "test")

    def test_a_second_put_replaces_the_entry(self, store: Store) -> None:
        """A reader that has the old one keeps it."""
        store.put(KEY, CONTENTS, kind="test")
        old = store.get(KEY)
        store.put(KEY, {"engine": b"new"}, kind="test")
        new = store.get(KEY)
        assert isinstance(old, Entry)
        assert isinstance(new, Entry)
        assert (bytes(old.read("engine")), bytes(new.read("engine"))) == (CONTENTS["engine"], b"new")
        assert [entry.digest for entry in store.scan()] == [KEY.digest]

    def test_entries_are_listed_with_sizes(self, store: Store) -> None:
        """``scan`` yields what ``stat`` returns."""
        for key in (KEY, OTHER):
            store.put(key, CONTENTS, kind="test")
        listed = {entry.digest: entry for entry in store.scan()}
        assert set(listed) == {KEY.digest, OTHER.digest}
        assert all(store.stat(digest) == entry and entry.file_bytes > 0 for digest, entry in listed.items())
        assert store.header(KEY.digest).key.document == KEY.document
        assert store.pins() == frozenset()

    @pytest.mark.parametrize("how", ["remove", "quarantine"])
    def test_an_entry_that_is_taken_out_is_absent(self, store: Store, how: str) -> None:
        """``remove`` returns the bytes that it freed."""
        store.put(KEY, CONTENTS, kind="test")
        size_bytes = store.stat(KEY.digest).file_bytes
        if how == "remove":
            assert store.remove(KEY.digest) == size_bytes
        else:
            store.quarantine(KEY.digest, "test")
        assert store.get(KEY) == Miss("absent")
        assert list(store.scan()) == []

    def test_a_store_that_is_only_read_never_changes(self, store: Store) -> None:
        """Every change raises ``ReadOnlyError``; look-ups work."""
        store.put(KEY, CONTENTS, kind="test")
        store.writable = False
        with pytest.raises(ReadOnlyError):
            store.put(OTHER, CONTENTS, kind="test")
        with pytest.raises(ReadOnlyError):
            store.remove(KEY.digest)
        with pytest.raises(ReadOnlyError):
            store.quarantine(KEY.digest, "test")
        assert isinstance(store.get(KEY), Entry)
