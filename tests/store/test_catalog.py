"""The catalog: files and index, each healing the other."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from trtcache.cache import Cache
from trtcache.digests import CacheKey
from trtcache.store.catalog import counters, load_records, rebuild
from trtcache.store.disk import DiskStore
from trtcache.store.index import engine_for
from trtcache.store.record import INDEX_NAME, IndexState, index_state, read_rows
from trtcache.target import host_platform, resolve_target
from trtcache_migrations import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine


def put(store: DiskStore, number: int, size: int = 10) -> str:
    """Put an entry and return its digest."""
    key = CacheKey.of("test", {"n": number})
    store.put(key, {"a": bytes([number]) * size}, kind="test", name=f"model {number}", build_s=float(number))
    return key.digest


def names(store: DiskStore) -> set[str | None]:
    """Return the names of the records."""
    return {record.name for record in load_records(store)}


def test_every_file_has_a_record(store: DiskStore) -> None:
    """The first listing makes the index, the second finds everything in it."""
    put(store, 1), put(store, 2)
    first = load_records(store)
    assert {record.name for record in first} == {"model 1", "model 2"}
    assert set(read_rows(store.root / INDEX_NAME) or {}) == {record.digest for record in first}
    assert load_records(store) == first


def test_a_listing_that_finds_the_index_right_writes_nothing(store: DiskStore) -> None:
    """The index is not touched by looking."""
    put(store, 1)
    load_records(store)
    before = (store.root / INDEX_NAME).stat()
    load_records(store)
    assert (store.root / INDEX_NAME).stat() == before


@pytest.mark.parametrize("content", [None, b"", b"junk" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_losing_or_breaking_the_index_loses_nothing(store: DiskStore, content: bytes | None) -> None:
    """Every entry and every pin is back in the next listing."""
    put(store, 1)
    store.pin(put(store, 2))
    before = load_records(store)
    (store.root / INDEX_NAME).unlink()
    if content is not None:
        (store.root / INDEX_NAME).write_bytes(content)
    assert load_records(store) == before
    assert [record.name for record in before if record.pinned] == ["model 2"]
    assert len(read_rows(store.root / INDEX_NAME) or {}) == 2


def test_an_index_with_a_row_of_a_wrong_type_is_rebuilt(store: DiskStore) -> None:
    """Writing to it would not fix that row, and every listing would read all headers."""
    put(store, 1)
    load_records(store)
    with closing(sqlite3.connect(store.root / INDEX_NAME)) as connection:
        connection.execute("INSERT INTO entries SELECT 'x', kind, name, x'00', 1, 1, 1, '', 1.0, 1, 1 FROM entries")
        connection.commit()
    assert read_rows(store.root / INDEX_NAME) is None
    assert names(store) == {"model 1"}
    assert len(read_rows(store.root / INDEX_NAME) or {}) == 1


def test_an_index_without_targets_is_migrated_and_read_again(store: DiskStore) -> None:
    """It keeps its rows and counters; the next listing reads all headers, and the one after it none."""
    from alembic import command
    from alembic.config import Config

    import trtcache_migrations

    parts = {"target": resolve_target("x86-64", device="cpu").document()}
    store.put(CacheKey.of("test", parts), {"artifact": b""}, kind="test", name="model")
    store.events.append("hit", kind="test", saved_s=1.0)
    before, counted = load_records(store), counters(store)
    assert before[0].target == f"cpu, {host_platform()} x86-64"
    with engine_for(store.index_root / INDEX_NAME).begin() as connection:
        config = Config()
        config.set_main_option("script_location", os.fspath(trtcache_migrations.__path__[0]))
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    assert index_state(store.index_root / INDEX_NAME) is IndexState.OLDER
    for _ in range(2):
        assert load_records(store) == before
        assert (read_rows(store.index_root / INDEX_NAME) or {})[before[0].digest][7] == before[0].target
    assert counters(store) == counted
    assert not (store.root / "quarantine").exists()


def test_two_indexes_are_migrated_by_two_threads(tmp_path: Path) -> None:
    """Alembic's environment is one per process, so one waits for the other."""
    connections = [engine_for(tmp_path / f"{number}.sqlite") for number in range(4)]

    def migrate(engine: Engine) -> None:
        with engine.begin() as connection:
            upgrade(connection)

    with ThreadPoolExecutor() as pool:
        list(pool.map(migrate, connections))
    assert {index_state(tmp_path / f"{number}.sqlite") for number in range(4)} == {IndexState.CURRENT}


def test_rows_without_files_are_dropped(store: DiskStore) -> None:
    """A file that was deleted is not listed, and its row is dropped."""
    digest = put(store, 1)
    put(store, 2)
    load_records(store)
    store.path(digest).unlink()
    assert names(store) == {"model 2"}
    assert set(read_rows(store.root / INDEX_NAME) or {}) == {record.digest for record in load_records(store)}


def test_a_replaced_file_is_read_again(store: DiskStore) -> None:
    """A row of the file that was there before is not believed."""
    key = CacheKey.of("test", {"n": 1})
    store.put(key, {"a": b"x" * 10}, kind="test", name="before")
    load_records(store)
    store.put(key, {"a": b"y" * 10}, kind="test", name="after!")
    assert names(store) == {"after!"}


def test_use_is_taken_from_the_file_and_comes_first(store: DiskStore) -> None:
    """A hit needs no index, and the next listing knows of it all the same."""
    first, second = put(store, 1), put(store, 2)
    load_records(store)
    os.utime(store.path(second), ns=(10**18, 10**18))
    os.utime(store.path(first), ns=(2 * 10**18, 2 * 10**18))
    assert [(record.digest, record.used_ns) for record in load_records(store)] == [
        (first, 2 * 10**18),
        (second, 10**18),
    ]


def test_a_file_with_a_damaged_header_is_quarantined_and_counted(
    store: DiskStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It is listed no more and stops no listing."""
    digest = put(store, 1)
    put(store, 2)
    store.path(digest).write_bytes(b"rubbish")
    assert names(store) == {"model 2"}
    assert [event.event for event in store.events.read()] == ["quarantine"]
    assert "damaged" in caplog.text
    assert names(store) == {"model 2"}


def test_a_file_of_a_later_format_is_left_alone(store: DiskStore) -> None:
    """Another version of the program may use the directory too."""
    from trtcache.store import format as artifact

    digest = put(store, 1)
    path = store.path(digest)
    raw = bytearray(path.read_bytes())
    raw[8] = artifact.FORMAT + 1
    prelude = artifact.parse_prelude(bytes(raw[:64]), len(raw), "")
    front = raw[: prelude.members_from]
    raw[32:64] = artifact.hash_bytes(bytes(front[:32] + front[64:]))
    path.write_bytes(raw)
    assert load_records(store) == []
    assert path.exists()


def test_a_read_only_store_is_listed_and_not_written(store: DiskStore) -> None:
    """With and without an index, and with a damaged file in it."""
    put(store, 1)
    damaged = put(store, 2)
    store.path(damaged).write_bytes(b"rubbish")
    readonly = DiskStore.open(store.root, readonly=True)
    before = sorted(path.name for path in store.root.rglob("*"))
    assert names(readonly) == {"model 1"}
    assert sorted(path.name for path in store.root.rglob("*")) == before
    load_records(store)
    assert names(readonly) == {"model 1"}


def test_an_index_that_cannot_be_written_costs_a_warning(store: DiskStore, caplog: pytest.LogCaptureFixture) -> None:
    """The entries are listed from their headers."""
    put(store, 1)
    (store.root / "locks").write_text("in the way of the lock file")
    assert names(store) == {"model 1"}
    assert "the index cannot be used" in caplog.text


def test_rebuilding_reads_every_header(store: DiskStore) -> None:
    """A row with wrong content is corrected."""
    from trtcache.store.index import write_rows
    from trtcache.store.record import Record

    digest = put(store, 1)
    stored = store.stat(digest)
    lie = Record(digest, "lie", "lie", stored.file_bytes, 1, 1, 1, 1.0, 1, inode=stored.inode)
    write_rows(store.root, put=[lie])
    assert names(store) == {"lie"}
    assert {record.name for record in rebuild(store)} == {"model 1"}
    assert names(store) == {"model 1"}


def test_listing_while_entries_come_and_go(tmp_path: Path) -> None:
    """Entries removed between the scan and the reading are simply not there."""
    store = DiskStore.open(tmp_path / "cache")
    for number in range(5):
        put(store, number)
    gone = next(iter(store.scan())).digest

    class Racing(DiskStore):
        """A store in which an entry goes just after each scan."""

        def scan(self):  # type: ignore[no-untyped-def]
            """Scan, then remove one."""
            found = list(super().scan())
            self.path(gone).unlink(missing_ok=True)
            return iter(found)

    racing = Racing.open(store.root)
    assert len(load_records(racing)) == 4
    assert len(load_records(store)) == 4


def _put_many(root: Path) -> None:
    for number in range(40):
        Cache(root, max_size=60_000).get_or_build({"n": number}, lambda: b"x" * 3000, kind="test")


def _list_many(root: Path) -> None:
    store = DiskStore.open(root)
    for _ in range(40):
        load_records(store)


def test_processes_that_put_prune_and_list_agree_in_the_end(store: DiskStore) -> None:
    """Finally the index has exactly the existing files, and no entry was treated as damaged."""
    context = multiprocessing.get_context("spawn")
    work = (_put_many, _put_many, _list_many)
    processes = [context.Process(target=one, args=(store.root,)) for one in work]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    records = load_records(store)
    assert {record.digest for record in records} == {stored.digest for stored in store.scan()}
    assert {record.digest for record in records} == set(read_rows(store.root / INDEX_NAME) or {})
    assert sum(record.file_bytes for record in records) <= 60_000
    assert not (store.root / "quarantine").exists()


def test_a_listing_leaves_an_entry_that_replaced_a_damaged_one(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is quarantined is the file that was read."""
    digest = put(store, 1)
    path = store.path(digest)
    intact = path.read_bytes()
    path.write_bytes(b"damaged")
    real_header = store.header

    def read_and_replace(digest: str) -> object:
        try:
            return real_header(digest)
        finally:
            (path.parent / "new").write_bytes(intact)
            (path.parent / "new").rename(path)

    monkeypatch.setattr(store, "header", read_and_replace)
    assert load_records(store) == []
    assert path.read_bytes() == intact
    assert not (store.root / "quarantine").exists()


def test_a_time_after_2262_does_not_disable_the_index(store: DiskStore) -> None:
    """SQLite has no larger integers."""
    digest = put(store, 1)
    os.utime(store.path(digest), ns=(1 << 63, (1 << 63) + 10**9))
    (record,) = load_records(store)
    assert record.used_ns == (1 << 63) - 1
    assert set(read_rows(store.root / INDEX_NAME) or {}) == {digest}
