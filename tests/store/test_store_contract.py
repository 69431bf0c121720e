"""The contract of stores, on a disk and in memory, and another kind of store as a layer of a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.store.memory import MemoryStore
from trtcache.cache import Cache
from trtcache.store.disk import DiskStore
from trtcache.testing.stores import CONTENTS, KEY, StoreContract

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.store.contract import Store


class TestDiskStore(StoreContract):
    """The store on a file system."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """Return an empty store in a temporary directory."""
        return DiskStore.open(tmp_path / "store")


class TestMemoryStore(StoreContract):
    """The store in memory."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store."""
        return MemoryStore()


@pytest.mark.parametrize("copies", [False, True])
def test_another_kind_of_store_is_a_layer(tmp_path: Path, copies: bool) -> None:
    """A hit in it is a hit of the cache, and is copied up where the layers say so; a miss is built into the upper."""
    lower = MemoryStore()
    lower.put(KEY, CONTENTS, kind="test", name="below")
    lower.writable = False
    cache = Cache(tmp_path / "upper")
    assert cache.store is not None
    cache.layers = replace(cache.layers, lower=(lower,), copies=copies)
    entry = cache.peek(KEY)
    assert entry is not None
    assert (entry.outcome, bytes(entry.read("engine"))) == ("hit", CONTENTS["engine"])
    assert cache.store.contains(KEY.digest) is copies
    assert cache.layers.holder(KEY.digest) is (cache.store if copies else lower)
    hit = [event for event in cache.store.events.read() if event.event == "hit"]
    assert [event.reason for event in hit] == ["" if copies else "below"]
    built = cache.get_or_build({"n": 9}, lambda: b"built", kind="test")
    assert built.outcome == "built"
    assert not lower.contains(built.key.digest)
