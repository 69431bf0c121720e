"""The event logs: appended by many, read past whatever is torn."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from trtcache.store.events import Event, EventLog, read_from, retire
from trtcache.store.files import Folders

if TYPE_CHECKING:
    from pathlib import Path


def log_in(directory: Path, *, host: str = "h", writable: bool = True) -> EventLog:
    """Return a log with a fixed clock."""
    return EventLog(Folders(directory, shared=False), clock_ns=lambda: 7, writable=writable, host=host)


def test_events_come_back(tmp_path: Path) -> None:
    """What was appended is read, with every field."""
    log = log_in(tmp_path)
    log.append("hit", kind="k", key="ab", saved_s=1.25)
    log.append("miss", reason="corrupt:member")
    assert list(log.read()) == [Event(7, "hit", "", "k", "ab", 1.25), Event(7, "miss", "corrupt:member")]
    assert log.logs()[0].stat().st_mode & 0o777 == 0o600


def test_each_host_has_its_log(tmp_path: Path) -> None:
    """Two hosts never write the same file, and a host's name cannot leave the directory."""
    for host in ("a", "b", "../x", ".hidden", "a" * 300):
        log_in(tmp_path, host=host).append("hit")
    names = [path.name for path in log_in(tmp_path).logs()]
    assert names == [".._x.jsonl".replace(".", "_", 1), "_hidden.jsonl", "a.jsonl", "a" * 200 + ".jsonl", "b.jsonl"]
    assert len(list(log_in(tmp_path).read())) == 5


def test_torn_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    """Malformed lines are skipped; an incomplete last line is left for the next reader."""
    log = log_in(tmp_path)
    log.append("hit")
    path = log.logs()[0]
    with path.open("ab") as file:
        file.write(b'nonsense\n[]\n{"t": "x", "event": "hit"}\n{"event": "hit"}\n\xff\xfe\n{"t": 9, "event": "mi')
    events, offset = read_from(path, 0)
    assert [event.event for event in events] == ["hit"]
    with path.open("ab") as file:
        file.write(b'ss"}\n')
    assert read_from(path, offset) == ([Event(9, "miss")], path.stat().st_size)


def test_a_line_is_one_write_of_bounded_size(tmp_path: Path) -> None:
    """However long a reason is, its line stays under 4096 bytes, so that no two lines can mix."""
    log = log_in(tmp_path)
    log.append("miss", reason="é" * 5000, kind="k" * 5000, key="x" * 5000)
    assert log.logs()[0].stat().st_size < 8192
    assert next(log.read()).reason == "é" * 512


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    """Eight threads append two hundred events each, and all of them are read."""
    log = log_in(tmp_path)
    threads = [threading.Thread(target=lambda: [log.append("hit") for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(log.read())) == 1600


def test_a_log_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    """Read-only, or with a link or a directory in the log's place, appending does nothing and raises nothing."""
    log_in(tmp_path, writable=False).append("hit")
    assert not (tmp_path / "events").exists()
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "h.jsonl").symlink_to(tmp_path / "elsewhere")
    log_in(tmp_path).append("hit")
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "events" / "h.jsonl").unlink()
    os.mkfifo(tmp_path / "events" / "h.jsonl")
    log_in(tmp_path).append("hit")


def test_no_line_goes_to_another_file_by_a_hard_link(tmp_path: Path) -> None:
    """What has a second name somewhere is not written to: events go to the log after it."""
    canary = tmp_path / "canary"
    canary.write_text("alive")
    log = log_in(tmp_path)
    log.append("hit")
    for name in ("h.jsonl", "h.sums"):
        (log.directory / name).unlink(missing_ok=True)
        (log.directory / name).hardlink_to(canary)
    for _ in range(2):
        log.append("put")
    assert [event.event for event in read_from(log.directory / "h+1.jsonl", 0)[0]] == ["put", "put"]
    with pytest.raises(OSError, match="not a plain file"):
        retire(log.directory, "h", kept=1)
    assert canary.read_text() == "alive"


def test_a_line_that_was_written_in_part_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next event has a line of its own."""
    log, write = log_in(tmp_path), os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:9]))
    log.append("hit")
    monkeypatch.undo()
    log.append("put")
    assert [event.event for event in log.read()] == ["put"]
