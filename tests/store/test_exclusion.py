"""Locks that do not exclude are found before a build, and never for a hit."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from trtcache.cache import Cache
from trtcache.store.files import try_locks, why_not_exclusive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def lets_all(_fd: int, _how: int) -> None:
    """Grant every lock."""


def has_none(_fd: int, _how: int) -> None:
    """Have no locks.

    Raises:
        OSError: always.
    """
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize(
    ("lock", "seen"),
    [
        pytest.param(fcntl.flock, None, id="kernel"),
        pytest.param(lets_all, "two descriptors held the same lock at once", id="lets-all"),
        pytest.param(has_none, "it has no locks: No locks available", id="none"),
    ],
)
def test_two_descriptors_tell(tmp_path: Path, lock: Callable[[int, int], None], seen: str | None) -> None:
    """The second is refused where locks exclude; no file is left."""
    assert try_locks(tmp_path, lock=lock) == seen
    assert list(tmp_path.iterdir()) == []


def test_what_excludes_is_remembered(tmp_path: Path) -> None:
    """A success is cached, a failure is not; a missing directory is a failure."""
    store, notes = tmp_path / "store", tmp_path / "notes"
    store.mkdir()
    notes.mkdir()
    assert why_not_exclusive(store, notes, lock=lets_all) is not None
    assert why_not_exclusive(store, notes) is None
    assert why_not_exclusive(store, notes, lock=lets_all) is None
    assert why_not_exclusive(tmp_path / "gone", notes) == "its locks cannot be tested: No such file or directory"


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A store with an entry, treated as if on a network file system."""
    Cache(tmp_path / "remote").get_or_build({"n": 1}, lambda: b"built", kind="test")
    monkeypatch.setattr("trtcache.store.disk.is_local", lambda _: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "remote"


def test_nothing_is_stored_where_locks_do_not_exclude(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Hits are served and builds returned; the warning has what was seen, and the local store over it that helps."""
    monkeypatch.setattr(
        "trtcache.store.disk.why_not_exclusive", lambda *_: "two descriptors held the same lock at once"
    )
    cache = Cache(remote)
    assert cache.get_or_build({"n": 1}, lambda: b"again", kind="test").read() == b"built"
    assert caplog.text == ""
    entry = cache.get_or_build({"n": 2}, lambda: b"two", kind="test")
    assert (entry.read(), entry.path) == (b"two", None)
    assert "two descriptors held the same lock" in caplog.text
    assert f"TRTCACHE_PATH=LOCAL:{remote}" in caplog.text
    monkeypatch.undo()
    over = Cache(tmp_path / "local", lower=[remote])
    assert over.get_or_build({"n": 1}, lambda: b"again", kind="test").outcome == "hit"
    assert over.get_or_build({"n": 2}, lambda: b"two", kind="test").path is not None


def test_the_index_of_a_network_file_system_is_of_this_host(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the user's cache directory, not in WAL mode, separate for each host; the store itself has none."""
    for name in ("index.sqlite", "index.sqlite-journal"):
        (remote / name).unlink(missing_ok=True)
    cache = Cache(remote)
    assert cache.get_or_build({"n": 2}, lambda: b"two", kind="test").path is not None
    indexes = list((tmp_path / "home").rglob("index.sqlite"))
    assert len(indexes) == 1
    assert indexes[0].read_bytes()[18:20] == b"\1\1"
    assert not (remote / "index.sqlite").exists()
    assert list(indexes[0].parent.glob("locks-exclude-*"))
    assert cache.store is not None
    other = os.uname_result(("Linux", "other", "6", "1", "x86_64"))
    monkeypatch.setattr("os.uname", lambda: other)
    assert Cache(remote).layers.stores[0].index_root != cache.store.index_root
