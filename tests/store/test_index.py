"""The index: created, migrated, quarantined and rebuilt automatically."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import trtcache_migrations
from trtcache.errors import CorruptBlobError, IndexUnavailableError
from trtcache.store.index import ENTRIES, METADATA, Index, engine_for, on_index, rebuild_index, write_rows
from trtcache.store.record import COLUMNS, INDEX_NAME, VERSIONS, IndexState, Record, index_state, read_rows

if TYPE_CHECKING:
    from pathlib import Path


def record(number: int = 1) -> Record:
    """Return a record that differs from others by its number."""
    return Record(f"{number:064x}", "test", f"model {number}", 10, 20, 30, 40, 1.5, 1, inode=number)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with an index of two rows."""
    write_rows(tmp_path, put=[record(1), record(2)])
    return tmp_path


def digests(root: Path) -> set[int] | None:
    """Return the numbers of the records that have rows."""
    rows = read_rows(root / INDEX_NAME)
    return None if rows is None else {int(digest, 16) for digest in rows}


def quarantined(root: Path) -> list[str]:
    """Return the names of quarantined files."""
    return sorted(path.name for path in (root / "quarantine").glob("*"))


def test_rows_come_back_as_they_were_put(root: Path) -> None:
    """The standard library reads what SQLAlchemy wrote."""
    rows = read_rows(root / INDEX_NAME)
    assert rows
    assert rows[record(1).digest] == (record(1).digest, "test", "model 1", 10, 20, 30, 40, "", 1.5, 1, 1)


def test_rows_are_replaced_and_dropped(root: Path) -> None:
    """A second put of a digest is an update; a drop of an unknown one is nothing."""
    with Index.open(root) as index:
        index.apply(put=[record(3), record(1)], drop=[record(2).digest, "unknown"])
    assert digests(root) == {1, 3}


def test_the_plain_reader_and_the_mapped_table_have_the_same_columns() -> None:
    """The listing's select cannot drift from the schema."""
    assert tuple(ENTRIES.columns.keys()) == COLUMNS


def test_migrations_make_exactly_the_mapped_schema(root: Path, tmp_path: Path) -> None:
    """Alembic finds no difference between the mapping and an index, whether it was migrated or created."""
    with engine_for(tmp_path / "migrated.sqlite").begin() as connection:
        trtcache_migrations.upgrade(connection)
    versions = []
    for path in (tmp_path / "migrated.sqlite", root / INDEX_NAME):
        assert index_state(path) is IndexState.CURRENT
        with engine_for(path).connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
            version = "SELECT sql FROM sqlite_master WHERE name = 'alembic_version'"
            versions.append("".join(str(connection.exec_driver_sql(version).scalar()).split()))
    assert versions[0] == versions[1]


def test_the_known_versions_are_the_migrations() -> None:
    """The version that is read without alembic is alembic's head, and every step is known."""
    scripts = ScriptDirectory(os.fspath(trtcache_migrations.__path__[0]))
    steps = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(steps)) == VERSIONS
    assert scripts.get_current_head() == VERSIONS[-1]


def test_migrations_can_be_undone(root: Path) -> None:
    """The first migration leads back to an empty database."""
    from alembic import command
    from alembic.config import Config

    with engine_for(root / INDEX_NAME).begin() as connection:
        config = Config()
        config.set_main_option("script_location", os.fspath(trtcache_migrations.__path__[0]))
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        tables = connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars().all()
    assert tables == ["alembic_version"] or "entries" not in tables


def test_connections_are_set_up_for_hostile_files_and_power_cuts(root: Path) -> None:
    """The journal is truncated and flushed, never WAL, and the schema of a file is not trusted."""
    wanted = {"journal_mode": "truncate", "synchronous": 2, "trusted_schema": 0, "cell_size_check": 1, "mmap_size": 0}
    with engine_for(root / INDEX_NAME).connect() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in wanted}
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 5000
    assert found == wanted


def test_writers_begin_immediately(root: Path) -> None:
    """A transaction holds the write lock from its beginning, so that it never fails in the middle."""
    with (
        engine_for(root / INDEX_NAME).begin(),
        closing(sqlite3.connect(root / INDEX_NAME, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("BEGIN IMMEDIATE")


def test_a_failed_write_changes_nothing(root: Path) -> None:
    """Rows and offsets of one call are one transaction."""

    def fail(_offsets: object) -> None:
        raise OSError("no log")

    with Index.open(root) as index, pytest.raises(IndexUnavailableError, match="no log"):
        index.fold(fail)  # type: ignore[arg-type]
    assert digests(root) == {1, 2}


def _sql(*statements: str) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        return bytes(connection.serialize())


_NEWEST = "INSERT INTO alembic_version VALUES ('0002')"
_VERSION = "CREATE TABLE alembic_version (version_num TEXT)"
FOREIGN = {
    "text": b"this is no database\n" * 100,
    "empty page": b"\0" * 4096,
    "another program's database": _sql("CREATE TABLE songs (title TEXT)"),
    "a newer schema": _sql(_VERSION, "INSERT INTO alembic_version VALUES ('9999')"),
    "two versions": _sql(_VERSION, "INSERT INTO alembic_version VALUES ('0001'), ('0000')"),
    "no version": _sql(_VERSION),
    "our version on other tables": _sql(_VERSION, _NEWEST),
    "our version on other columns": _sql(_VERSION, _NEWEST, "CREATE TABLE entries (digest TEXT, kind TEXT)"),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_index_is_quarantined_and_rebuilt(root: Path, content: bytes) -> None:
    """A write goes into a new index, and the old file is kept for inspection."""
    (root / INDEX_NAME).write_bytes(content)
    assert digests(root) is None
    write_rows(root, put=[record(7)])
    assert digests(root) == {7}
    assert len([name for name in quarantined(root) if "journal" not in name]) == 1


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
def test_an_index_that_is_not_a_file_is_quarantined(root: Path, make: object) -> None:
    """A directory, a pipe or a link in the index's place neither blocks nor is followed."""
    (root / INDEX_NAME).unlink()
    make(root / INDEX_NAME)  # type: ignore[operator]
    assert index_state(root / INDEX_NAME) is IndexState.FOREIGN
    write_rows(root, put=[record(7)])
    assert digests(root) == {7}


def test_an_index_that_a_crash_left_empty_is_created(tmp_path: Path) -> None:
    """The file exists before its tables do."""
    (tmp_path / INDEX_NAME).touch()
    assert index_state(tmp_path / INDEX_NAME) is IndexState.ABSENT
    write_rows(tmp_path, put=[record(1)])
    assert digests(tmp_path) == {1}
    assert quarantined(tmp_path) == []


def test_rows_of_other_types_make_the_index_unread(root: Path) -> None:
    """SQLite keeps a blob in a column of integers; a listing must not fall over it."""
    with closing(sqlite3.connect(root / INDEX_NAME)) as connection:
        connection.execute("UPDATE entries SET file_bytes = x'00' WHERE inode = 1")
        connection.commit()
    assert read_rows(root / INDEX_NAME) is None


def test_an_older_schema_is_migrated_in_place(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of an earlier known version keeps its rows and is not quarantined."""
    from trtcache.store import record

    monkeypatch.setattr(record, "VERSIONS", (*VERSIONS, "9001"))
    assert index_state(root / INDEX_NAME) is IndexState.OLDER
    with Index.open(root):
        pass  # alembic leads to its own head and keeps what is there
    monkeypatch.undo()
    assert digests(root) == {1, 2}
    assert quarantined(root) == []


def test_a_locked_index_is_unavailable_and_unharmed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is limited, and the message has the reason."""
    from trtcache.store import index

    monkeypatch.setattr(index, "PRAGMAS", ("PRAGMA busy_timeout=10",))
    with closing(sqlite3.connect(root / INDEX_NAME)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(IndexUnavailableError, match="locked"):
            write_rows(root, put=[record(3)])
    assert digests(root) == {1, 2}


def test_damage_within_the_file_is_found_by_the_writer(root: Path) -> None:
    """A damaged page makes the open index raise, and the next write rebuilds it."""
    with Index.open(root) as index:
        size = (root / INDEX_NAME).stat().st_size
        with (root / INDEX_NAME).open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        with pytest.raises(CorruptBlobError, match="index"):
            index.apply(put=[record(3)])
    write_rows(root, put=[record(3)])
    assert digests(root) == {3}


def test_no_flipped_byte_stops_the_index(root: Path) -> None:
    """With any byte wrong it is read as some rows or none, and a write leaves the new row in a sound index."""
    path = root / INDEX_NAME
    whole = path.read_bytes()
    chance = random.Random(0)
    for offset in chance.sample(range(len(whole)), 60) + list(range(0, 100, 7)):
        flipped = bytearray(whole)
        flipped[offset] ^= chance.randrange(1, 256)
        path.write_bytes(flipped)
        read_rows(path)
        write_rows(root, put=[record(5)])
        rows = read_rows(path)
        assert rows is None or record(5).digest in rows, offset


def test_rebuilding_makes_an_index_of_just_these_rows(root: Path) -> None:
    """The previous index is quarantined."""
    rebuild_index(root, [record(9)])
    assert digests(root) == {9}
    assert any("rebuild" in name for name in quarantined(root))


def _write_one(root: Path, number: int) -> None:
    write_rows(root, put=[record(number)])


def test_an_index_that_is_replaced_under_a_writer_gets_its_row(root: Path) -> None:
    """SQLite says that such a database is read-only; the writer goes on with the new one."""
    count = 0

    def work(index: Index) -> None:
        nonlocal count
        count += 1
        with index._writing() as connection:
            if count == 1:
                rebuild_index(root, [record(1)])
            connection.execute(ENTRIES.delete().where(ENTRIES.c.digest == record(1).digest))

    on_index(root, work)
    assert (count, read_rows(root / INDEX_NAME)) == (2, {})


def test_an_index_without_tables_for_a_moment_is_kept(root: Path) -> None:
    """Another process has moved the index away, and creates the next one; what it puts there stays."""
    count = 0

    def work(index: Index) -> None:
        nonlocal count
        count += 1
        if count == 1:
            (root / INDEX_NAME).unlink()
            try:
                index.apply(put=[record(3)])
            finally:
                rebuild_index(root, [record(1)])
        index.apply(put=[record(3)])

    on_index(root, work)
    assert set(read_rows(root / INDEX_NAME) or {}) == {record(1).digest, record(3).digest}


def test_processes_that_make_it_together_lose_no_row(tmp_path: Path) -> None:
    """Six processes open a missing index at once; all their rows are in one file."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_one, args=(tmp_path, number)) for number in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 6
    assert digests(tmp_path) == set(range(6))
    assert quarantined(tmp_path) == []


_KILLED_IN_A_COMMIT = """
import os, signal, sys
from pathlib import Path
from trtcache.store.index import engine_for
engine = engine_for(Path(sys.argv[1]))
with engine.begin() as connection:
    connection.exec_driver_sql("PRAGMA cache_size=1")
    connection.exec_driver_sql("PRAGMA cache_spill=1")
    connection.exec_driver_sql("DELETE FROM entries")
    connection.exec_driver_sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
        "INSERT INTO entries SELECT printf('%064d', i), 'k', 'n', 1, 1, 1, 1, '', 1.0, 1, 1 FROM n"
    )
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_killed_in_a_transaction_leaves_the_rows_before_it(root: Path) -> None:
    """Its journal is rolled back by the next writer; a reader that cannot do that reads nothing wrong."""
    done = subprocess.run([sys.executable, "-c", _KILLED_IN_A_COMMIT, str(root / INDEX_NAME)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (root / f"{INDEX_NAME}-journal").stat().st_size > 0
    assert digests(root) in (None, {1, 2})
    write_rows(root, put=[record(3)])
    assert digests(root) == {1, 2, 3}


@pytest.mark.parametrize("value", [{"name": "\ud800"}, {"size_bytes": 1 << 63}])
def test_a_value_that_no_column_takes_is_an_error_of_the_index(root: Path, value: dict[str, Any]) -> None:
    """The driver's own exception never reaches who only stored an entry, and the other rows stay."""
    with pytest.raises(IndexUnavailableError):
        write_rows(root, put=[replace(record(3), **value)])
    assert digests(root) == {1, 2}
