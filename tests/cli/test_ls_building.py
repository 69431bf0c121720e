"""``trtcache ls --building``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.holding import holder
from trtcache.store.single_flight import BuildProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtcache.store.disk import DiskStore

    from .conftest import Result

KEY = "cd" * 32


def test_what_is_being_built_is_shown(run: Callable[..., Result], store: DiskStore) -> None:
    """The builder, the start, and the waiters: as JSON, and as tab-separated fields."""
    here = f"{os.uname().nodename}:"
    with holder(store.root, KEY) as process, store.notes.waiting(KEY, BuildProcess.here(kind="test")):
        (found,) = run("ls", "--building", "--json").json["building"]
        ((key, kind, name, builder, program, since_s, waiting),) = run("ls", "--building").rows
    assert (found["key"], found["builder"]["pid"], found["builder"]["name"]) == (KEY, process.pid, "bert")
    assert [who["pid"] for who in found["waiters"]] == [os.getpid()]
    assert (key, kind, name, builder, program) == (KEY, "test", "bert", f"{here}{process.pid}", "holding.py")
    assert (int(since_s), waiting) == (found["builder"]["since_s"], f"{here}{os.getpid()}")


def test_a_terminal_gets_a_table_of_builds(terminal: Callable[..., Result], store: DiskStore) -> None:
    """Or a line that says that there are none."""
    with holder(store.root, KEY) as process:
        out = terminal("ls", "--building").out
    assert f":{process.pid}" in out
    assert "BUILDER" in out
    assert "nothing is being built" in terminal("ls", "--building").out


def test_a_builder_without_a_note_is_unknown(run: Callable[..., Result], store: DiskStore) -> None:
    """Its lock alone is not listed, but with a waiter it is."""
    with holder(store.root, KEY):
        (store.root / "locks" / "building" / KEY).write_bytes(b"no note")
        with store.notes.waiting(KEY, BuildProcess.here()):
            (found,) = run("ls", "--building", "--json").json["building"]
            (row,) = run("ls", "--building").rows
    assert found["builder"] is None
    assert row[:6] == [KEY, "", "", "", "", ""]


def test_looking_changes_nothing(run: Callable[..., Result], root: Path) -> None:
    """A missing store is not created."""
    assert run("ls", "--building").out == ""
    assert run("ls", "--building", "--json").json == {"building": []}
    assert not root.exists()
