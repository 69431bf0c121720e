"""Read the index with the standard library alone: its state, and its rows for a listing.

Importing SQLAlchemy takes 0.2 to 0.35 s and alembic as much again (measured, 2 cores), more than half of the budget for
``trtcache ls``. So reads use this module and writes ``index.py``. Rows are hints: any inconsistency causes a rebuild of
the index.
"""

from __future__ import annotations

import enum
import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

INDEX_NAME = "index.sqlite"

VERSIONS = ("0001", "0002")
"""Schema versions of the migrations, oldest first; the last one is current."""

Row: TypeAlias = "tuple[str, str, str | None, int, int, int, int, str, float, int, int]"
"""One entry of the index: the values of ``COLUMNS``."""

SCHEMA: dict[str, type] = {
    "digest": str,
    "kind": str,
    "name": str,
    "file_bytes": int,
    "size_bytes": int,
    "created_ns": int,
    "used_ns": int,
    "target": str,
    "build_s": float,
    "members": int,
    "inode": int,
}
"""Columns of the table of entries and the types of their values; ``name`` may be None."""

COLUMNS = tuple(SCHEMA)
_TYPES = tuple(SCHEMA.values())
_TYPES_UNNAMED = (str, str, type(None), *_TYPES[3:])
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM entries"  # noqa: S608  # constant names

PRAGMAS = (
    "PRAGMA busy_timeout=5000",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    "PRAGMA mmap_size=0",
)
"""Set on every connection: a hostile file's schema cannot run functions, and a torn page is an error, not a SIGBUS."""


class IndexState(enum.Enum):
    """State of the file at the index's path."""

    ABSENT = "absent"
    OLDER = "older"
    CURRENT = "current"
    FOREIGN = "foreign"


def index_state(path: Path) -> IndexState:
    """Return the state of the index at ``path``, reading the schema version without alembic.

    ``FOREIGN`` is anything that cannot be migrated: another program's file, a damaged one, a newer schema, a link or a
    directory. A database without tables is ``ABSENT``: a crash during creation leaves one.

    Raises:
        sqlite3.OperationalError: the file cannot be read now, because of a lock or a journal to roll back.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return IndexState.ABSENT
    if not stat.S_ISREG(mode):
        return IndexState.FOREIGN
    try:
        with closing(_connect(path)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if not tables:
                return IndexState.ABSENT
            if "alembic_version" not in tables:
                return IndexState.FOREIGN
            versions = [version for (version,) in connection.execute("SELECT version_num FROM alembic_version")]
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return IndexState.FOREIGN
        raise
    if versions == [VERSIONS[-1]]:
        return IndexState.CURRENT
    return IndexState.OLDER if len(versions) == 1 and versions[0] in VERSIONS else IndexState.FOREIGN


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error means that the index is damaged or foreign, rather than locked, full or read-only."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError)
    primary = code & 0xFF
    return primary in {
        sqlite3.SQLITE_ERROR,  # no such table or column: another schema under our version's name
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_TOOBIG,
    }


def read_rows(path: Path) -> dict[str, Row] | None:
    """Return the rows by digest, or None if the index cannot be read now, or has to be created, migrated or rebuilt."""
    try:
        if index_state(path) is not IndexState.CURRENT:
            return None
        with closing(_connect(path)) as connection:
            rows = connection.execute(_SELECT).fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        return None
    # SQLite columns accept any type: a row of a wrong one means that the index has to be rebuilt.
    valid = {tuple(map(type, row)) for row in rows} <= {_TYPES, _TYPES_UNNAMED}
    return {row[0]: row for row in rows} if valid else None


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    for pragma in PRAGMAS:
        connection.execute(pragma)
    return connection
