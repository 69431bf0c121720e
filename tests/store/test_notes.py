"""Status files of builders and waiters: only those of living processes, and printable whatever they contain."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.holding import holder
from trtcache.store.disk import DiskStore
from trtcache.store.files import Folders
from trtcache.store.single_flight import BuildNotes, BuildProcess

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ab" * 32


def test_a_note_comes_back() -> None:
    """With host, process, program, time, and what is built."""
    who = BuildProcess.here(kind="test", name="bert")
    assert BuildProcess.decode(who.encode()) == who
    assert (str(who), who.host) == (f"{os.uname().nodename}:{os.getpid()}", os.uname().nodename)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"7",
        b"\xff",
        b'{"host": "h"}',
        b'{"host": "h", "pid": "x", "since_ns": 1}',
        b'{"host": "h", "pid": -1, "since_ns": 1}',
        b'{"host": "", "pid": 1, "since_ns": 1}',
        b'{"host": "h", "pid": 1, "since_ns": 1e400}',
        b"[" * 4000,
    ],
    ids=["empty", "list", "number", "no-text", "fields", "pid", "negative", "host", "time", "deep"],
)
def test_a_malformed_note_is_ignored(raw: bytes) -> None:
    """This is not an error: every user who can write to a store can write status files."""
    assert BuildProcess.decode(raw) is None


def test_a_strangers_text_is_short_and_printable() -> None:
    """No control character reaches a terminal, and no long text."""
    raw = b'{"host": "a\\u001b[2Jb\\n", "program": "%s", "pid": 1, "since_ns": 1}' % (b"x" * 1000)
    who = BuildProcess.decode(raw)
    assert who is not None
    assert (who.host, len(who.program)) == ("a?[2Jb?", 128)


@pytest.mark.parametrize("letter", ["x", "\N{ROCKET}"])
def test_a_long_name_is_truncated_when_it_is_written(tmp_path: Path, letter: str) -> None:
    """The status file is read whole, also if each character takes twelve bytes."""
    store = DiskStore.open(tmp_path / "cache")
    who = BuildProcess("h" * 200, 1, letter * 5000, 1, letter * 5000, letter * 5000)
    with store.flight(KEY, who=who):
        found = store.notes.builder(KEY)
    assert found is not None
    assert (found.name, found.pid) == (letter * 128, 1)


def test_ctrl_c_while_a_note_is_written_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the next builder would report that this one died."""
    store = DiskStore.open(tmp_path / "cache")
    create = BuildNotes._create

    def interrupt(notes: BuildNotes, kind: str, name: str, who: BuildProcess) -> int:
        os.close(create(notes, kind, name, who))
        raise KeyboardInterrupt

    monkeypatch.setattr(BuildNotes, "_create", interrupt)
    with pytest.raises(KeyboardInterrupt), store.notes.building(KEY, BuildProcess.here()):
        pass
    assert list((store.root / "locks" / "building").iterdir()) == []


@pytest.mark.parametrize("put", ["link", "pipe", "directory"])
def test_a_note_is_read_from_regular_files_only(tmp_path: Path, put: str) -> None:
    """Links are not followed, and pipes do not block."""
    store = DiskStore.open(tmp_path / "cache")
    folder = store.root / "locks" / "building"
    folder.mkdir(parents=True)
    (tmp_path / "note").write_bytes(BuildProcess.here().encode())
    if put == "link":
        (folder / KEY).symlink_to(tmp_path / "note")
    elif put == "pipe":
        os.mkfifo(folder / KEY)
    else:
        (folder / KEY).mkdir()
    assert store.notes.builder(KEY) is None


def test_who_builds_and_who_waits_is_listed_while_they_live(tmp_path: Path) -> None:
    """A builder that is killed, and unlocked status files, are not listed, and a waiter is."""
    store = DiskStore.open(tmp_path)
    with holder(store.root, KEY) as process:
        with store.notes.waiting(KEY, BuildProcess.here()):
            (found,) = store.notes.running_builds()
            assert found.builder is not None
            assert (found.builder.pid, found.builder.name) == (process.pid, "bert")
            assert [who.pid for who in found.waiters] == [os.getpid()]
        (store.root / "locks" / "waiting" / f"{KEY}.0").write_bytes(BuildProcess.here().encode())
        (found,) = store.notes.running_builds()
        assert found.waiters == ()
        process.kill()
        process.wait()
        assert store.notes.running_builds() == []
    with store.flight(KEY) as turn:
        assert turn.left_by is not None
        assert turn.left_by.pid == process.pid
    with store.flight(KEY) as turn:
        assert turn.left_by is None


def test_notes_have_the_modes_of_their_store(tmp_path: Path) -> None:
    """Of a shared one every member can read and replace them, whatever the umask."""
    for shared, expected in ((False, (0o700, 0o600)), (True, (0o2770, 0o660))):
        root = tmp_path / str(shared)
        root.mkdir()
        root.chmod(0o2770 if shared else 0o700)
        before = os.umask(0o077)
        try:
            with BuildNotes(Folders(root, shared)).building(KEY, BuildProcess.here()):
                modes = [path.stat().st_mode & 0o7777 for path in sorted((root / "locks").rglob("*"))]
        finally:
            os.umask(before)
        assert tuple(modes) == expected


def test_a_note_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    """Only the lock matters."""
    store = DiskStore.open(tmp_path)
    (store.root / "locks").mkdir()
    (store.root / "locks" / "building").write_bytes(b"")
    (store.root / "locks" / "waiting").write_bytes(b"")
    with store.flight(KEY) as turn, store.notes.waiting(KEY, BuildProcess.here()):
        assert turn.left_by is None


def test_a_network_file_system_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of the entry is changed, with nothing left in it; that of a local store is not touched."""
    store = DiskStore.open(tmp_path)
    store.forget_absence(KEY)
    assert not (tmp_path / "entries").exists()
    monkeypatch.setattr("trtcache.store.disk.is_local", lambda _: False)
    store.forget_absence(KEY)
    folder = tmp_path / "entries" / KEY[:2]
    os.utime(folder, ns=(1, 1))
    store.forget_absence(KEY)
    assert folder.stat().st_mtime_ns > 1
    assert list(folder.iterdir()) == []
