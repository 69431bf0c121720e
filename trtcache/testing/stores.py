"""The contract of stores. A subclass has a fixture ``store``."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtcache.digests import CacheKey
from trtcache.errors import ReadOnlyError, UnknownKeyError
from trtcache.store.contract import Entry, Miss, Store

KEY, OTHER = CacheKey.of("test", {"n": 1}), CacheKey.of("test", {"n": 2})
CONTENTS = {"engine": b"plan" * 1000, "interface.json": b"{}"}


class StoreContract:
    """Tests that every kind of store has to pass."""

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
