"""Damage of every kind to entries and to the index: nothing wrong is ever served."""

from __future__ import annotations

import logging
import random
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.effort import tries
from tests.store.mutations import mutations
from trtcache.digests import CacheKey
from trtcache.store.catalog import load_records
from trtcache.store.contract import Entry, Miss
from trtcache.store.disk import DiskStore
from trtcache.store.record import INDEX_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.torture, pytest.mark.no_cover]

CONTENTS = {
    "artifact": random.Random(0).randbytes(700) + bytes(800),  # compressed, which has a checksum of its own
    "stored": random.Random(1).randbytes(600),
    "weights.json": b'{"w": 1}' * 9,
}


@pytest.fixture(autouse=True)
def _no_words() -> Iterator[None]:
    """Each damaged file logs a warning, which would be thousands of lines."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Interrupt what hangs."""

    def stop(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def told(capsys: pytest.CaptureFixture[str], line: str) -> None:
    """Print the number of attempts."""
    with capsys.disabled():
        sys.stdout.write(f"\n{line}\n")


def test_no_damaged_entry_is_served(store: DiskStore, key: CacheKey, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is done to an entry's file, asking for it gives a miss and no other error."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    whole, reader, tried = path.read_bytes(), DiskStore.open(store.root, readonly=True), 0
    for what, data in mutations(whole, tries(3_000, 200_000)):
        path.write_bytes(data)
        with no_longer_than(60):
            assert isinstance(reader.get(key), Miss), what
        tried += 1
    path.write_bytes(whole)
    assert isinstance(reader.get(key), Entry)
    told(capsys, f"{tried} damaged forms of an entry of {len(whole)} bytes: none was served")


def test_no_damage_to_the_index_serves_anything_wrong(
    store: DiskStore, key: CacheKey, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is done to the index, the entry is served, a listing names just what is there, and a put works."""
    store.put(key, CONTENTS, kind="test")
    load_records(store)
    path, tried = store.root / INDEX_NAME, 0
    whole = path.read_bytes()
    for what, data in mutations(whole, tries(60, 20_000)):
        _replace(path, data)
        with no_longer_than(30):
            found = store.get(key)
            assert isinstance(found, Entry), what
            assert found.read("weights.json") == CONTENTS["weights.json"]
            assert [record.digest for record in load_records(store)] == [key.digest], what
        tried += 1
    store.put(CacheKey.of("test", {"n": 2}), CONTENTS, kind="test")
    assert len(load_records(store)) == 2
    told(capsys, f"{tried} damaged forms of an index of {len(whole)} bytes: each listing was right")


def _replace(path: Path, data: bytes) -> None:
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    path.write_bytes(data)
    path.chmod(0o600)


def test_entries_in_each_others_place_are_refused(store: DiskStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Of sound entries, none is served under another's name."""
    keys = [CacheKey.of("test", {"n": number}) for number in range(tries(12, 50))]
    for number, key in enumerate(keys):
        store.put(key, {"artifact": b"%d" % number}, kind="test")
    files = {key.digest: store.path(key.digest).read_bytes() for key in keys}
    for asked in keys:
        path = store.path(asked.digest)
        for given in keys:
            if asked != given:
                path.write_bytes(files[given.digest])
                path.chmod(0o600)
                assert store.get(asked) == Miss("corrupt:key")
        path.write_bytes(files[asked.digest])
        path.chmod(0o600)
        assert isinstance(store.get(asked), Entry)
    told(capsys, f"{len(keys) * (len(keys) - 1)} swapped pairs: none was served")
