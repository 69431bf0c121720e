"""The SQLite index of a store: a cache of the artifact files' headers and of counters.

All of its content can be rebuilt from the store's files. A missing, damaged, foreign or newer index is quarantined and
rebuilt; an older one is migrated. Both happen on open, under one lock file, so that only one process or thread does
it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    URL,
    Column,
    Float,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    create_engine,
    delete,
    event,
    select,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import CorruptBlobError, IndexUnavailableError, LockTimeoutError
from trtcache.store.events import Counters, EventCount
from trtcache.store.files import hold
from trtcache.store.record import COLUMNS, INDEX_NAME, PRAGMAS, SCHEMA, VERSIONS, IndexState, index_state, is_damage

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from trtcache.store.record import Record


T = TypeVar("T")

_LOCK_WAIT_S = 30.0
_SQL_TYPES: dict[type, Any] = {str: Text, int: Integer, float: Float}

METADATA = MetaData()
ENTRIES = Table(
    "entries",
    METADATA,
    *(
        Column(name, _SQL_TYPES[type_], primary_key=name == "digest", nullable=name == "name")
        for name, type_ in SCHEMA.items()
    ),
)
"""One artifact file: its header and directory metadata."""

EVENT_LOGS = Table(
    "event_logs", METADATA, Column("log", Text, primary_key=True), Column("offset_bytes", Integer, nullable=False)
)
"""Offset up to which one host's event log has been counted."""

COUNTERS = Table(
    "counters",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("day", "event", "reason", "kind")),
    Column("count", Integer, nullable=False),
    Column("saved_s", Float, nullable=False),
)
"""Number of events on one day (UTC), and the seconds they saved."""


@frozen_dataclass
class Index:
    """An open index with the current schema. Every method is one transaction and thread-safe."""

    path: Path
    engine: Engine

    @classmethod
    @contextmanager
    def open(cls, root: Path) -> Iterator[Index]:
        """Open the index of the store at ``root``, creating or migrating it first if necessary."""
        path = root / INDEX_NAME
        with _translate_errors(path):
            if _state(path) is not IndexState.CURRENT:
                with _index_lock(root):
                    state = _state(path)  # another process may have prepared it meanwhile
                    if state is IndexState.FOREIGN:
                        _quarantine(root, "foreign")
                    if state is not IndexState.CURRENT:
                        path.touch(mode=0o600)
                        with _transaction(path) as connection:
                            if state is IndexState.OLDER:
                                _upgrade(connection, path)
                            else:
                                _create_tables(connection)
        index = cls(path, engine_for(path))
        try:
            yield index
        finally:
            index.engine.dispose()

    def apply(self, *, put: Iterable[Record] = (), drop: Iterable[str] = ()) -> None:
        """Insert or replace the rows of ``put`` and delete those of ``drop``."""
        rows = [{column: getattr(record, column) for column in COLUMNS} for record in put]
        gone = [{"gone": digest} for digest in drop]
        with self._writing() as connection:
            if gone:
                connection.execute(delete(ENTRIES).where(ENTRIES.c.digest == bindparam("gone")), gone)
            _upsert(connection, ENTRIES, rows)

    def fold(self, tails: Callable[[Mapping[str, int]], tuple[Counters, dict[str, int]] | None]) -> Counters:
        """Add new event-log counts to the counters in one transaction, and return all counters.

        ``tails`` receives the offset up to which each log was counted, and returns the later counts and the new
        offsets, or None if everything has to be counted again.
        """
        with self._writing() as connection:
            offsets = {row.log: row.offset_bytes for row in connection.execute(select(EVENT_LOGS))}
            counted = tails(offsets)
            if counted is None:
                for table in (COUNTERS, EVENT_LOGS):
                    connection.execute(delete(table))
                counted = tails({})
            if counted is not None:
                gained, reached = counted
                rows = [(*key, total.count, total.sum_s) for key, total in gained.items()]
                _upsert(
                    connection, COUNTERS, [dict(zip(COUNTERS.c.keys(), row, strict=True)) for row in rows], add=True
                )
                _upsert(connection, EVENT_LOGS, [{"log": log, "offset_bytes": end} for log, end in reached.items()])
            totals = connection.execute(select(COUNTERS))
            return {(day, what, why, kind): EventCount(count, sum_s) for day, what, why, kind, count, sum_s in totals}

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with _translate_errors(self.path), self.engine.begin() as connection:
            yield connection


def _upgrade(connection: Connection, path: Path) -> None:
    try:
        from trtcache_migrations import upgrade  # alembic, 0.3 s

        upgrade(connection)
    except SQLAlchemyError:
        raise  # the caller knows damage from a lock
    except Exception as error:  # alembic has errors of its own, and a migration may raise anything
        raise IndexUnavailableError(str(path), f"its migration failed: {error}") from error


def _create_tables(connection: Connection) -> None:
    """Create the newest schema, with the version that alembic would write."""
    METADATA.create_all(connection)
    connection.exec_driver_sql(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (VERSIONS[-1],))


def _upsert(connection: Connection, table: Table, rows: list[dict[str, Any]], *, add: bool = False) -> None:
    """Insert rows; one with an existing primary key replaces the other values, or is added to them with ``add``."""
    if rows:
        statement = insert(table)
        new = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
        values = {name: table.c[name] + value for name, value in new.items()} if add else new
        connection.execute(statement.on_conflict_do_update(index_elements=[*table.primary_key], set_=values), rows)


def engine_for(path: Path) -> Engine:
    """Create an engine for the SQLite file: no pool, immediate transactions, a truncated journal.

    ``docs/adr/0002-index-journal.md`` explains why WAL is not used. The default driver begins transactions late and not
    at all for DDL, so its transaction handling is disabled and the ``begin`` event starts them.
    """
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool)

    def on_connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        for pragma in (*PRAGMAS, "PRAGMA journal_mode=TRUNCATE", "PRAGMA synchronous=FULL"):
            connection.execute(pragma)

    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine


def rebuild_index(root: Path, records: Iterable[Record]) -> None:
    """Quarantine the index and create a new one with the rows of ``records``; counters return with the next fold."""
    with _translate_errors(root / INDEX_NAME), _index_lock(root):
        _quarantine(root, "rebuild")
    with Index.open(root) as index:
        index.apply(put=records)


def write_rows(root: Path, *, put: Iterable[Record] = (), drop: Iterable[str] = ()) -> None:
    """Write rows into the index at ``root``, rebuilding it once if it turns out to be damaged."""
    put, drop = list(put), list(drop)
    on_index(root, lambda index: index.apply(put=put, drop=drop))


def on_index(root: Path, work: Callable[[Index], T]) -> T:
    """Run ``work`` on the index at ``root``; if that is damaged, quarantine it and run on a new one.

    It is tried again before: a process that replaces it at this moment leaves no table, or a file that was moved.
    """
    for is_again in (False, True):
        try:
            with Index.open(root) as index:
                return work(index)
        except CorruptBlobError:
            if is_again:
                rebuild_index(root, ())
        except IndexUnavailableError as error:
            if is_again or not _was_moved(error):
                raise
    with Index.open(root) as index:
        return work(index)


def _was_moved(error: IndexUnavailableError) -> bool:
    """Return whether the file was moved while it was open, as by ``rebuild_index`` of another process."""
    cause = error.__cause__
    cause = cause.orig if isinstance(cause, DBAPIError) else cause
    return getattr(cause, "sqlite_errorname", "") == "SQLITE_READONLY_DBMOVED"


def _state(path: Path) -> IndexState:
    try:
        return index_state(path)
    except sqlite3.OperationalError:
        # Let SQLite roll back the journal of a killed writer, which a read-only connection cannot do.
        with _transaction(path) as connection:
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
        return index_state(path)


@contextmanager
def _transaction(path: Path) -> Iterator[Connection]:
    engine = engine_for(path)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _quarantine(root: Path, reason: str) -> None:
    quarantine = root / "quarantine"
    quarantine.mkdir(mode=0o700, exist_ok=True)
    for name in (INDEX_NAME, f"{INDEX_NAME}-journal", f"{INDEX_NAME}-wal", f"{INDEX_NAME}-shm"):
        with suppress(FileNotFoundError):
            (root / name).rename(quarantine / f"{name}.{reason}.{time.time_ns()}")


@contextmanager
def _index_lock(root: Path) -> Iterator[None]:
    try:
        with hold(root / "locks" / "index.lock", timeout_s=_LOCK_WAIT_S):
            yield
    except LockTimeoutError as error:
        raise IndexUnavailableError(str(root / INDEX_NAME), "another process has been creating it for 30 s") from error


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and SQLAlchemy: the index is damaged, or temporarily unavailable.

    The driver raises plain Python errors for unsupported values: integers of 65 bits, text that is not Unicode.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, ArithmeticError, TypeError, ValueError) as error:
        cause: Any = error.orig if isinstance(error, DBAPIError) else error
        if is_damage(cause):
            raise CorruptBlobError(str(path), "index", str(cause)) from error
        raise IndexUnavailableError(str(path), str(cause)) from error
