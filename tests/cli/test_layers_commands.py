"""Commands with layers: the location of entries, and changes in the upper store only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from trtcache.cache import Cache
from trtcache.digests import CacheKey
from trtcache.store.disk import DiskStore
from trtcache_cli.run import environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

BELOW = CacheKey.of("test", {"n": 2}).digest
BOTH = CacheKey.of("test", {"n": 1}).digest


@pytest.fixture
def layers(root: Path, put: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskStore:
    """Entry 1 in the upper store and in the lower one, which is returned, and entry 2 in the lower one."""
    put(1)
    lower = DiskStore.open(tmp_path / "lower")
    for number in (1, 2):
        lower.put(CacheKey.of("test", {"n": number}), {"artifact": b"x" * 100}, kind="test", name=f"model {number}")
    monkeypatch.delenv("TRTCACHE_DIR")
    monkeypatch.setenv("TRTCACHE_PATH", f"{root}:{lower.root}")
    return lower


def test_entries_are_listed_with_their_layer(
    run: Callable[..., Result], terminal: Callable[..., Result], root: Path, layers: DiskStore
) -> None:
    """Each key once, with the store that serves it; a directory on the command line is used alone."""
    assert {one["key"]: one["layer"] for one in run("ls", "--json").json["entries"]} == {
        BOTH: str(root),
        BELOW: str(layers.root),
    }
    assert {row[0]: row[-1] for row in run("ls").rows}[BELOW] == str(layers.root)
    assert "LAYER" in terminal("ls").out
    assert [row[0] for row in run("ls", "--cache-dir", root).rows] == [BOTH]


def test_an_entry_below_is_shown_and_explained(run: Callable[..., Result], layers: DiskStore) -> None:
    """Its path is the lower one's, and its nearest entry may lie in the other store."""
    assert run("show", BELOW[:8], "--json").json["path"] == str(layers.path(BELOW))
    assert run("why", BELOW[:8]).code == 0
    assert run("diff", BELOW[:8], BOTH[:8]).out == "n: 2 -> 1\n"
    assert run("dir", "--json").json["lower"] == [str(layers.root)]


def test_damage_below_is_found_and_not_repaired(run: Callable[..., Result], layers: DiskStore) -> None:
    """It is for who owns that layer; what can be repaired is the upper store."""
    os.truncate(layers.path(BELOW), 50)
    done = run("verify", "--json")
    assert (done.code, done.json["checked"]) == (4, 3)
    assert [(one["key"], one["layer"]) for one in done.json["damaged"]] == [(BELOW, str(layers.root))]
    repaired = run("verify", "--repair", "--json").json
    assert (repaired["checked"], repaired["damaged"]) == (1, [])
    assert layers.path(BELOW).exists()


def test_only_the_upper_store_is_tended(run: Callable[..., Result], layers: DiskStore) -> None:
    """Nothing below can be removed or pinned, nor is it pruned or cleaned."""
    for command in (("rm", BELOW), ("pin", BELOW), ("unpin", BELOW)):
        done = run(*command)
        assert (done.code, f"is in the lower layer {layers.root}, which is only read" in done.err) == (5, True)
    assert "no entry" in run("rm", "f" * 64).err
    assert run("prune", "--max-size", "0", "-y", "--json").json["evict"][0]["key"] == BOTH
    assert run("clean", "-y").code == 0
    assert {one.digest for one in layers.scan()} == {BOTH, BELOW}


def test_a_pin_whose_entry_is_only_below_is_removed(run: Callable[..., Result], root: Path, layers: DiskStore) -> None:
    """Such as after the entry was quarantined: the pin is in the upper store."""
    upper = DiskStore.open(root)
    upper.pin(BOTH)
    upper.remove(BOTH)
    assert run("unpin", BOTH[:12]).rows == [[BOTH, "not pinned"]]
    assert upper.pins() == frozenset()


def test_hits_from_below_are_counted_apart(
    run: Callable[..., Result], terminal: Callable[..., Result], layers: DiskStore
) -> None:
    """They are hits, and some of them."""
    cache = Cache.from_environ()
    for number in (1, 2, 2):
        assert cache.get(CacheKey.of("test", {"n": number})) is not None
    found = run("stats", "--json").json
    assert (found["hits"], found["hits_below"]) == (3, 2)
    assert "from lower layers" in terminal("stats").out
    assert layers.events.logs() == []


def test_a_program_with_a_directory_of_its_own_has_no_layers(layers: DiskStore) -> None:
    """``trtcache run --cache-dir`` replaces the environment's path."""
    environ = environment(os.environ, layers.root)
    assert (environ["TRTCACHE_DIR"], environ.get("TRTCACHE_PATH")) == (str(layers.root), None)
