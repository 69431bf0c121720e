"""A database that is not what the store made: in a shared store by a member, in a private one out of a bad backup."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from attacks.stage import Stage, Succeeded, engine_of, key_of, served
from trtcache.store.catalog import load_records
from trtcache.store.disk import DiskStore
from trtcache.store.record import INDEX_NAME

_HOSTILE = (
    "UPDATE entries SET kind = 'tensorrt', name = 'other', inode = inode, size_bytes = 9223372036854775807",
    "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
    "ALTER TABLE entries RENAME TO hidden",
    "CREATE VIEW entries AS SELECT * FROM hidden UNION ALL SELECT * FROM hidden",
    "UPDATE hidden SET digest = '../../../../etc/passwd'",
    "UPDATE hidden SET digest = zeroblob(1000000)",
)


def attack(folder: Path) -> str:
    """Change a private index step by step, plant one in a shared store; ask for entries and list them after each."""
    store = DiskStore.open(folder / "private")
    for number in range(3):
        store.put(key_of(number), {"artifact": engine_of(number)}, kind="test")
    wanted = {key_of(number).digest for number in range(3)}
    for step in range(len(_HOSTILE)):
        load_records(store)
        _spoil(store.root / INDEX_NAME, _HOSTILE[: step + 1])
        _check(store, wanted)
    stage = Stage.set(folder)
    main = stage.main()
    for number in range(3):
        stage.put(main, number)
    planted = stage.root / INDEX_NAME
    planted.write_bytes((store.root / INDEX_NAME).read_bytes())
    _spoil(planted, _HOSTILE)
    before = planted.read_bytes(), planted.stat().st_mtime_ns
    _check(main, wanted)
    if before != (planted.read_bytes(), planted.stat().st_mtime_ns):
        raise Succeeded("what a member planted in the shared store was written to")
    return (
        f"{len(_HOSTILE)} changes of a private index: nothing wrong served or listed; a shared one is not even opened"
    )


def _spoil(path: Path, statements: tuple[str, ...]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            try:
                connection.execute(statement)
            except sqlite3.Error:
                continue  # the step before has been undone already
        connection.commit()


def _check(store: DiskStore, wanted: set[str]) -> None:
    listed = [record.digest for record in load_records(store)]
    if sorted(listed) != sorted(wanted):
        raise Succeeded(f"{len(listed)} entries are listed, and {len(wanted)} are there")
    if any(served(store, number) is None for number in range(3)):
        raise Succeeded("an entry is lost")
