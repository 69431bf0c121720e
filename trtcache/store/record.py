"""Records of entries, and filters over them as typed on the command line: ``size>100MB``, ``name~bert``.

Importing SQLAlchemy takes 0.2 to 0.35 s and alembic as much again (measured, 2 cores), more than half of the budget
for ``trtcache ls``. So reads use this module and writes ``index.py``. Rows are hints: any inconsistency causes a
rebuild of the index.

A record is the metadata of an entry that is available without opening its file. A filter is one or more conditions
joined by commas, all of which must hold. A condition is a field, an operator and a value. ``~`` is a case-insensitive
substring match, not a regular expression. A key is compared by its beginning, with or without ``b3:``.
"""

from __future__ import annotations

import enum
import operator
import re
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import parse_duration, parse_size
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from trtcache.store.format import EntryHeader
    from trtcache.store.reader import EntryStat


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


Predicate: TypeAlias = "Callable[[Record], bool]"
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_CONDITION = re.compile(r"\s*([A-Za-z_]+)\s*(<=|>=|!=|!~|<|>|=|~)\s*(.*?)\s*")


@frozen_dataclass
class Record:
    """One entry of the catalog.

    ``file_bytes`` is the size on disk and ``size_bytes`` the uncompressed size of the members. ``used_ns`` is the
    file's modification time, which every hit updates. ``inode`` identifies the file that was read, so a replaced one is
    detected. ``target`` is the target in the key in readable form, empty for keys without one.
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
    target: str = ""

    @classmethod
    def of(cls, header: EntryHeader, stored: EntryStat, *, pinned: bool) -> Record:
        """Build the record of the file ``stored`` whose header is ``header``."""
        from trtcache.target import label_of  # a listing of indexed entries does not need it

        begin = (stored.digest, header.kind, header.name, stored.file_bytes, header.size_bytes, header.created_ns)
        target, members = label_of(header.key.document), len(header.members)
        return cls(*begin, stored.used_ns, float(header.build_s), members, stored.inode, pinned, target)

    @classmethod
    def of_listing(cls, stored: EntryStat, *, pinned: bool) -> Record:
        """Build the record of an entry of which the header was not read: without kind, name and build time."""
        used_ns = stored.used_ns
        return cls(stored.digest, "", None, stored.file_bytes, 0, used_ns, used_ns, 0.0, 0, stored.inode, pinned)

    def as_json(self) -> dict[str, str | int | float | bool | None]:
        """Return the fields for ``--json`` output; their names are stable."""
        names = ("kind", "name", "file_bytes", "size_bytes", "created_ns", "used_ns", "build_s", "members", "pinned")
        return {"key": self.digest} | {name: getattr(self, name) for name in (*names, "target")}


_TEXTUAL: dict[str, Callable[[Any, Any], bool]] = {
    "!=": operator.ne,
    "!~": lambda text, part: part.casefold() not in text.casefold(),
    "=": operator.eq,
    "~": lambda text, part: part.casefold() in text.casefold(),
}
_BY_PREFIX: dict[str, Callable[[Any, Any], bool]] = {
    **_TEXTUAL,
    "!=": lambda digest, prefix: not digest.startswith(prefix),
    "=": str.startswith,
}
_EQUAL = {sign: _ORDERED[sign] for sign in ("=", "!=")}


@frozen_dataclass
class _Field:
    """How to read a field from a record (at a time in ns), parse its values, and compare them."""

    read: Callable[[Record, int], object]
    parse: Callable[[str, str], object]
    operators: dict[str, Callable[[Any, Any], bool]]


def _flag(text: str, name: str) -> bool:
    value = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}.get(text.lower())
    if value is None:
        raise SettingsError(name, f"{text!r} is not yes or no")
    return value


def _key_prefix(text: str, name: str) -> str:
    prefix = text.lower().removeprefix("b3:")
    if not prefix:  # which every key starts with
        raise SettingsError(name, "expected a key, or the beginning of one")
    return prefix


def _count(text: str, name: str) -> int:
    if not text.isdecimal():
        raise SettingsError(name, f"{text!r} is not a whole number")
    return int(text)


FIELDS = {
    "age": _Field(lambda record, now_ns: (now_ns - record.created_ns) / 1e9, parse_duration, _ORDERED),
    "build": _Field(lambda record, _: record.build_s, parse_duration, _ORDERED),
    "key": _Field(lambda record, _: record.digest, _key_prefix, _BY_PREFIX),
    "kind": _Field(lambda record, _: record.kind, lambda text, _: text, _TEXTUAL),
    "members": _Field(lambda record, _: record.members, _count, _ORDERED),
    "name": _Field(lambda record, _: record.name or "", lambda text, _: text, _TEXTUAL),
    "pinned": _Field(lambda record, _: record.pinned, _flag, _EQUAL),
    "size": _Field(lambda record, _: record.file_bytes, parse_size, _ORDERED),
    "target": _Field(lambda record, _: record.target, lambda text, _: text, _TEXTUAL),
    "unused": _Field(lambda record, now_ns: (now_ns - record.used_ns) / 1e9, parse_duration, _ORDERED),
}
"""``size`` is the size on disk; ``age`` counts from the build, ``unused`` from the last use."""


def parse_filters(texts: Iterable[str], *, now_ns: int) -> Predicate:
    """Return a predicate that requires every condition of every text; without texts it is always true."""
    conditions = [_condition(part, now_ns) for text in texts for part in text.split(",")]
    return lambda record: all(condition(record) for condition in conditions)


def names_one(texts: Iterable[str], fields: Collection[str]) -> bool:
    """Return whether a condition compares one of these fields by ``=`` or ``~``. The texts are well-formed."""
    matches = (_CONDITION.fullmatch(part) for text in texts for part in text.split(","))
    return any(match is not None and match[1] in fields and match[2] in ("=", "~") for match in matches)


def _condition(text: str, now_ns: int) -> Predicate:
    match = _CONDITION.fullmatch(text)
    known = f"fields: {', '.join(FIELDS)}"
    if match is None:
        raise SettingsError("filter", f"{text!r} is not a condition such as size>100MB or name~bert; {known}")
    name, sign, value = match.groups()
    field = FIELDS.get(name)
    if field is None:
        import difflib  # 2 ms, needed for misspelt names only

        close = difflib.get_close_matches(name, FIELDS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise SettingsError("filter", f"there is no field {name!r}{hint}; {known}")
    compare = field.operators.get(sign)
    if compare is None:
        raise SettingsError("filter", f"{name} does not support {sign!r}; use {' '.join(field.operators)}")
    wanted = field.parse(value, f"filter {name}")
    return lambda record: compare(field.read(record, now_ns), wanted)
