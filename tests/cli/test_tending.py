"""``trtcache pin``, ``unpin``, ``rm`` and ``clean``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.store.disk import DiskStore

    from .conftest import Result


def left(store: DiskStore) -> set[str]:
    """Return the digests that are still there."""
    return {stored.digest for stored in store.scan()}


def test_pins_come_and_go(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """Pinning twice is as once, and ls shows it."""
    first, second = put(1), put(2)
    assert run("pin", first[:10], second).rows == [[first, "pinned"], [second, "pinned"]]
    assert run("pin", "--json", first).json == {"keys": [first], "pinned": True}
    assert run("ls", "-q", "-f", "pinned=yes").out.count("\n") == 2
    assert run("unpin", second).rows == [[second, "not pinned"]]
    assert run("ls", "-q", "-f", "pinned=yes").out.split() == [first]


def test_one_wrong_key_changes_nothing(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """All keys are looked up first."""
    digest = put(1)
    assert run("pin", digest, "ffff").code == 5
    assert run("rm", digest, "ffff").code == 5
    assert (store.pins(), left(store)) == (frozenset(), {digest})


def test_rm_removes_by_key(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """The others stay, and the answer names what went."""
    first, second, third = put(1), put(2), put(3)
    assert run("rm", first[:12]).rows == [[first, "removed"]]
    found = run("rm", "--json", second).json
    assert found["removed"] == [second]
    assert found["freed_bytes"] > 4096
    assert left(store) == {third}


@pytest.mark.parametrize("options", [{"piped": True}, {}], ids=["a pipe", "a terminal"])
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["lines", "json"])
def test_rm_asks_wherever_it_can_be_answered(
    terminal: Callable[..., Result],
    put: Callable[..., str],
    store: DiskStore,
    form: tuple[str, ...],
    options: dict[str, bool],
) -> None:
    """It asks on standard error, as prune does; what the reader of a pipe gets is only the answer."""
    digest = put(1)
    declined = terminal("rm", *form, digest, answer="n\n", **options)
    assert (declined.code, left(store)) == (130, {digest})
    assert "Remove 1 entry?" in declined.out + declined.err
    assert declined.out == "" or not options
    removed = terminal("rm", *form, digest, answer="y\n", **options)
    assert (removed.code, left(store)) == (0, set())
    if options:
        assert removed.json["removed"] == [digest] if form else removed.rows == [[digest, "removed"]]
    digest = put(2)
    assert terminal("rm", *form, "-y", digest, **options).code == 0
    assert left(store) == set()


def test_rm_spares_pins_until_forced(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """A refusal removes nothing at all; force takes the pin with the entry."""
    pinned, other = put(1), put(2)
    run("pin", pinned)
    refused = run("rm", pinned, other)
    assert (refused.code, left(store)) == (2, {pinned, other})
    assert pinned[:16] in refused.err
    assert run("rm", "--force", pinned).code == 0
    assert (left(store), store.pins()) == ({other}, frozenset())


def test_clean_keeps_pins_and_sweeps_the_rest(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore
) -> None:
    """Quarantined files go too, and the directory stays a store."""
    pinned, bad = put(1), put(2)
    put(3)
    run("pin", pinned)
    store.quarantine(bad, "test")
    found = run("clean", "--json", "-y").json
    assert (len(found["removed"]), found["kept"]) == (1, 1)
    assert left(store) == {pinned}
    assert not list((store.root / "quarantine").iterdir())
    assert run("clean", "--all", "-y").code == 0
    assert (left(store), store.pins()) == (set(), frozenset())
    assert run("ls").code == 0


def test_clean_asks(run: Callable[..., Result], terminal: Callable[..., Result], put: Callable[..., str]) -> None:
    """Without a terminal it needs -y; an empty store needs neither."""
    assert run("clean").code == 0
    put(1)
    assert run("clean").code == 2
    assert terminal("clean", answer="n\n").code == 130
    assert terminal("clean", answer="y\n").code == 0
    assert run("ls").out == ""


@pytest.mark.parametrize(
    "command", [("pin", "a"), ("unpin", "a"), ("rm", "a"), ("clean", "-y"), ("verify", "--repair")]
)
def test_a_read_only_store_is_left_alone(
    run: Callable[..., Result], put: Callable[..., str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Each change exits with 3 and a reason."""
    put(1)
    monkeypatch.setenv("TRTCACHE_READONLY", "1")
    refused = run(*command)
    assert refused.code == 3
    assert "read-only" in refused.err


@pytest.mark.parametrize("command", ["pin", "unpin", "rm", "show"])
def test_a_key_is_required(run: Callable[..., Result], command: str) -> None:
    """Forgetting it is wrong usage."""
    assert run(command).code == 2


def test_clean_shows_its_plan(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """--dry-run removes nothing and needs no confirmation."""
    digest = put(1)
    assert run("clean", "--dry-run").rows[0][0] == digest
    assert run("clean", "--dry-run", "--json").json["dry_run"] is True
    assert left(store) == {digest}


def test_rm_spares_a_pinned_entry_without_a_record(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of a newer format: its pin counts, also one that is set during the removal."""
    digest = put(1)
    run("pin", digest)
    monkeypatch.setattr("trtcache_cli.rm.load_records", lambda _store: [])
    assert run("rm", digest).code == 2
    run("unpin", digest)
    monkeypatch.setattr("trtcache_cli.rm.remove", lambda *_args, **_options: store.pin(digest) or 0)
    assert "pinned meanwhile and kept" in run("rm", digest).err
    assert left(store) == {digest}
    assert run("rm", "--force", digest).code == 0
    assert (left(store), store.pins()) == (set(), frozenset())


def test_an_entry_that_is_pinned_while_clean_asks_stays(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted as kept."""
    first, second = put(1), put(2)
    monkeypatch.setattr("trtcache_cli.clean.confirm", lambda *_args, **_options: store.pin(first))
    done = run("clean", "--json")
    assert (done.json["removed"], done.json["kept"]) == ([second], 1)
    assert left(store) == {first}


def test_clean_all_removes_pins_that_are_set_while_it_asks(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their entries: a pin alone would keep the next entry of that key."""
    first = put(1)
    monkeypatch.setattr("trtcache_cli.clean.confirm", lambda *_args, **_options: store.pin(first))
    assert run("clean", "--all").code == 0
    assert (left(store), store.pins()) == (set(), frozenset())


def test_a_pin_whose_entry_is_gone_is_removed(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore
) -> None:
    """Its key is not that of an entry any more."""
    digest = put(1)
    run("pin", digest)
    store.remove(digest)
    assert run("pin", digest).code == 5
    assert run("unpin", "ffff").code == 5
    assert run("unpin", digest[:12]).rows == [[digest, "not pinned"]]
    assert store.pins() == frozenset()
