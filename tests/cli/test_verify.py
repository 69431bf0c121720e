"""``trtcache verify``."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from trtcache.store.disk import DiskStore
from trtcache.store.record import INDEX_NAME, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result


def damage(store: DiskStore, digest: str) -> None:
    """Flip the last byte of an entry's file."""
    path = store.path(digest)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def test_a_sound_store_passes(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """Nothing on standard output, a summary beside it, exit code 0."""
    put(1), put(2)
    done = run("verify")
    assert (done.code, done.out) == (0, "")
    assert "2 entries" in done.err
    assert "0 damaged" in done.err


def test_damage_is_found_and_left(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """Exit code 4, the key and the reason; the file stays where it is."""
    good, bad = put(1), put(2)
    damage(store, bad)
    done = run("verify")
    assert done.code == 4
    assert [row[:2] for row in done.rows] == [[bad, "member"]]
    assert run("verify", good).code == 0
    assert store.path(bad).exists()


def test_repair_quarantines_damage_and_rebuilds_the_index(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore
) -> None:
    """The second run is clean, and the index has the intact entries."""
    good, bad = put(1), put(2)
    run("ls")
    damage(store, bad)
    found = run("verify", "--repair", "--json")
    assert found.code == 0
    assert found.json["damaged"][0]["key"] == bad
    assert (found.json["checked"], found.json["repaired"]) == (2, True)
    assert set(read_rows(store.root / INDEX_NAME) or {}) == {good}
    assert any(path.name.startswith(bad) for path in (store.root / "quarantine").iterdir())
    assert run("verify").code == 0


def test_a_terminal_shows_progress(terminal: Callable[..., Result], put: Callable[..., str]) -> None:
    """A progress bar is shown on standard error and removed."""
    put(1)
    done = terminal("verify")
    assert done.code == 0
    assert "verifying" in done.out
    assert "0 damaged" in done.out


def test_a_file_of_a_later_format_is_not_damage(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore
) -> None:
    """It is reported and left alone."""
    from trtcache.store import format as artifact

    path = store.path(put(1))
    raw = bytearray(path.read_bytes())
    raw[8] = artifact.FORMAT + 1
    front = raw[: artifact.parse_prelude(bytes(raw[:64]), len(raw), "").members_from]
    raw[32:64] = artifact.hash_bytes(bytes(front[:32] + front[64:]))
    path.write_bytes(raw)
    done = run("verify")
    assert done.code == 0
    assert "upgrade trtcache" in done.err


def test_what_cannot_be_read_is_told_and_stays(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be sound and another's, so --repair does not move it, and both times the exit code is 4."""
    good, closed = put(1), put(2)
    opened = os.open

    def refused(path: str | Path, *args: Any, **kwargs: Any) -> int:
        if str(path) == str(store.path(closed)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *args, **kwargs)

    run("ls")
    monkeypatch.setattr(os, "open", refused)
    assert {row[0] for row in run("ls", "--signers").rows} == {good, closed}  # it has its row in the index
    for arguments in ([], ["--repair"]):
        done = run("verify", *arguments)
        assert (done.code, [row[:3] for row in done.rows]) == (4, [[closed, "unreadable", "Permission denied"]])
        assert "0 damaged, 1 unreadable" in done.err
    assert [row[0] for row in run("ls", "--signers").rows] == [good]
    assert store.path(closed).exists()


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["lines", "json"])
def test_what_was_quarantined_is_reported_if_the_index_cannot_be_rebuilt(
    run: Callable[..., Result],
    put: Callable[..., str],
    store: DiskStore,
    monkeypatch: pytest.MonkeyPatch,
    form: tuple[str, ...],
) -> None:
    """On a full disk the rebuild fails: the exit code is 1, and the output names what has gone."""
    bad = put(1)
    damage(store, bad)

    def full(store: DiskStore) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(store.root / INDEX_NAME))

    monkeypatch.setattr("trtcache.store.catalog.rebuild", full)
    done = run("verify", "--repair", *form)
    assert (done.code, bad in done.out, list(store.scan())) == (1, True, [])
    assert f"{INDEX_NAME}: No space left on device" in done.err
    assert "the index was rebuilt" not in done.err
    assert not form or done.json["repaired"] is False


def test_an_entry_that_cannot_be_quarantined_is_reported(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair goes on with the others, and exits with 4."""
    bad, worse = sorted([put(1), put(2)])
    damage(store, bad), damage(store, worse)
    real_quarantine = DiskStore.quarantine

    def quarantine(self: DiskStore, digest: str, reason: str) -> None:
        if digest == bad:
            raise PermissionError(errno.EACCES, "Permission denied")
        real_quarantine(self, digest, reason)

    monkeypatch.setattr(DiskStore, "quarantine", quarantine)
    done = run("verify", "--repair")
    assert done.code == 4
    assert f"{bad}\tunreadable\tmember; it cannot be quarantined: Permission denied" in done.out
    assert [stored.digest for stored in store.scan()] == [bad]
