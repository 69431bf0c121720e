"""``trtcache stats``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from .conftest import Result


CONTENT = b"".join(b"%d, " % number for number in range(20_000))


def use(root: Path) -> None:
    """Build once and hit twice."""
    for _ in range(3):
        Cache(root).get_or_build({"n": 1}, lambda: CONTENT, kind="test")


def test_what_the_cache_did_is_counted(run: Callable[..., Result], root: Path) -> None:
    """Hits, the miss with its reason, the put, and the content that compressed well."""
    use(root)
    found = run("stats", "--json").json
    assert (found["hits"], found["misses"], found["puts"]) == (2, {"absent": 1}, 1)
    assert found["hit_rate"] == 2 / 3
    assert (found["entries"], found["size_bytes"], found["root"]) == (1, len(CONTENT), str(root))
    assert found["compression"] > 2


def test_a_damaged_entry_is_counted_with_its_reason(run: Callable[..., Result], root: Path) -> None:
    """The next use is a miss that names the damage."""
    use(root)
    (file,) = root.glob("entries/*/*.trtc")
    file.write_bytes(file.read_bytes()[:-1])
    use(root)
    assert run("stats", "--json").json["misses"] == {"absent": 1, "corrupt:size": 1}


def test_people_get_lines(run: Callable[..., Result], root: Path) -> None:
    """Each reason has its own line."""
    use(root)
    pairs = dict(run("stats").rows)
    assert pairs["hits"] == "2 (66.7% of look-ups)"
    assert pairs["  absent"] == "1"
    assert pairs["size"].endswith("to 1)")


def test_a_terminal_gets_aligned_lines(terminal: Callable[..., Result], root: Path) -> None:
    """Names in one column, values in the next."""
    use(root)
    out = terminal("stats").out
    assert "66.7% of look-ups" in out
    assert "\t" not in out


def test_evictions_are_counted(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """With the rule that asked for them."""
    put(1)
    run("prune", "--max-size", 0, "-y")
    assert run("stats", "--json").json["evictions"] == {"max-size": 1}
    assert dict(run("stats").rows)["evictions"] == "1"


def test_an_empty_store_has_empty_statistics(run: Callable[..., Result]) -> None:
    """No division by nothing."""
    found = run("stats", "--json").json
    assert (found["hits"], found["hit_rate"], found["compression"], found["saved_s"]) == (0, None, None, 0)


def test_a_read_only_store_has_statistics(
    run: Callable[..., Result], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are summed from the logs, and nothing is written."""
    use(root)
    monkeypatch.setenv("TRTCACHE_READONLY", "1")
    before = sorted(root.rglob("*"))
    assert run("stats", "--json").json["hits"] == 2
    assert sorted(root.rglob("*")) == before
