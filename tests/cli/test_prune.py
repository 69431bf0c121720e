"""``trtcache prune``."""

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


def test_an_entry_that_is_pinned_while_prune_asks_stays(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not printed as evicted, and is counted as kept."""
    first, second = put(1), put(2)
    monkeypatch.setattr("trtcache_cli.removal.confirm", lambda *_args, **_options: store.pin(first))
    done = run("prune", "--max-entries", "0", "--json").json
    assert ([one["key"] for one in done["evict"]], done["kept"]) == ([second], 1)
    assert done["freed_bytes"] == done["bytes_before"] - done["bytes_after"]
    assert left(store) == {first}


def test_a_dry_run_prints_the_plan_and_removes_nothing(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore
) -> None:
    """Each line has key, kind, name, size, build time and why."""
    digests = [put(1), put(2)]
    done = run("prune", "--max-size", "5kB", "--dry-run")
    assert done.code == 0
    assert [(row[0], row[-1]) for row in done.rows] == [(digests[0], "max-size")]
    assert left(store) == set(digests)


def test_evicted_kinds_are_printed(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """In the plan's last line and in JSON."""
    put(1), put(2, kind="alias"), put(3, kind="alias")
    assert "to remove: 3 entries, 12.4 kB (2 alias, 1 test); " in run("prune", "--max-size", 0, "--dry-run").err
    kinds = run("prune", "--max-size", 0, "--dry-run", "--json").json["kinds"]
    assert {kind: share["entries"] for kind, share in kinds.items()} == {"alias": 2, "test": 1}


def test_without_a_terminal_it_needs_a_yes(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore
) -> None:
    """A script without -y gets an error and exits with 2."""
    digest = put(1)
    refused = run("prune", "--max-size", 0)
    assert (refused.code, left(store)) == (2, {digest})
    assert "use -y" in refused.err
    assert run("prune", "--max-size", 0, "-y").code == 0
    assert left(store) == set()


def test_a_terminal_is_asked(terminal: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """Declining keeps everything, confirming executes the plan."""
    digest = put(1)
    refused = terminal("prune", "--max-size", 0, answer="n\n")
    assert "Remove 1 entry" in refused.out
    assert (refused.code, left(store)) == (130, {digest})
    agreed = terminal("prune", "--max-size", 0, answer="y\n")
    assert (agreed.code, left(store)) == (0, set())
    assert "freed" in agreed.out


def test_pins_stay(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """Whatever the limit."""
    kept = put(1)
    put(2)
    run("pin", kept)
    run("prune", "--max-size", 0, "-y")
    assert left(store) == {kept}


def test_json_tells_what_was_done(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """The plan with reasons, sizes before and after, and what was freed."""
    put(1), put(2)
    planned = run("prune", "--json", "--filter", "name~1", "-n").json
    found = run("prune", "--json", "--filter", "name~1", "-y").json
    assert planned == {**found, "dry_run": True}
    assert [(one["name"], one["reason"]) for one in found["evict"]] == [("model 1", "filter")]
    assert found["freed_bytes"] == found["bytes_before"] - found["bytes_after"] > 0
    assert (found["kept"], found["dry_run"]) == (1, False)


def test_ages_and_idleness_are_options(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """Nothing is that old; then everything is."""
    put(1)
    assert run("prune", "--older-than", "1d", "--unused-for", "1h", "-y").code == 0
    assert len(left(store)) == 1
    run("prune", "--older-than", "0s", "-y")
    assert left(store) == set()


def test_the_limit_of_the_environment_is_the_default(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare prune does what a put would do."""
    put(1), put(2)
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", "6kB")
    run("prune", "-y")
    assert len(left(store)) == 1


@pytest.mark.parametrize(
    "args", [("--max-size", "much"), ("--older-than", "1 parsec"), ("--filter", "siez>1"), ("--unused-for",)]
)
def test_wrong_options_exit_with_2(run: Callable[..., Result], put: Callable[..., str], args: tuple[str, ...]) -> None:
    """One line has the reason, and nothing is removed."""
    put(1)
    done = run("prune", "-y", *args)
    assert done.code == 2
    assert done.err.startswith("trtcache: error: ")
    assert len(done.err.splitlines()) == 1


def test_a_read_only_store_is_not_pruned(
    run: Callable[..., Result], put: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be planned, and the attempt exits with 3."""
    put(1)
    monkeypatch.setenv("TRTCACHE_READONLY", "1")
    assert run("prune", "--max-size", 0, "--dry-run").code == 0
    refused = run("prune", "--max-size", 0, "-y")
    assert refused.code == 3
    assert "read-only" in refused.err


def test_a_long_plan_is_cut_at_a_terminal(terminal: Callable[..., Result], root: object) -> None:
    """Forty lines are enough to see what would go."""
    from crowd import crowded

    crowded(root, 50)  # type: ignore[arg-type]
    assert "... and 10 more" in terminal("prune", "--max-size", 0, "--dry-run").out
