"""``trtcache stats``."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from trtcache.cache import Cache
from trtcache.store.events import EventLog
from trtcache.store.files import Folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtcache.store.disk import DiskStore

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


def test_kinds_are_printed(run: Callable[..., Result], root: Path) -> None:
    """Each kind has its entries and bytes: always in JSON, in text if there are several."""
    use(root)
    assert [row[0] for row in run("stats").rows][:3] == ["cache directory", "entries", "size"]
    Cache(root).get_or_build({"n": 2}, lambda: b"12", kind="memo")
    found = run("stats", "--json").json
    assert {kind: share["entries"] for kind, share in found["kinds"].items()} == {"test": 1, "memo": 1}
    assert sum(share["file_bytes"] for share in found["kinds"].values()) == found["file_bytes"]
    assert dict(run("stats").rows)["  memo"].startswith("1, ")


def test_people_get_lines(run: Callable[..., Result], root: Path) -> None:
    """Each reason has its own line."""
    use(root)
    pairs = dict(run("stats").rows)
    assert pairs["hits"] == "2 (66.7% of lookups)"
    assert pairs["  absent"] == "1"
    assert pairs["size"].endswith("to 1)")


def test_a_terminal_gets_aligned_lines(terminal: Callable[..., Result], root: Path) -> None:
    """Names in one column, values in the next."""
    use(root)
    out = terminal("stats").out
    assert "66.7% of lookups" in out
    assert "\t" not in out


def test_evictions_are_counted(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """By the rule that selected them."""
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


def test_waits_takeovers_and_quarantines_are_counted(run: Callable[..., Result], store: DiskStore) -> None:
    """With the seconds of waiting, and lines of their own where there are any."""
    assert "waits" not in dict(run("stats").rows)
    for waited_s in (2.0, 40.0):
        store.events.append("wait", kind="test", waited_s=waited_s)
    store.events.append("takeover", kind="test")
    store.events.append("quarantine", reason="member")
    found = run("stats", "--json").json
    assert (found["waits"], found["waited_s"], found["takeovers"]) == (2, 42.0, 1)
    assert (found["quarantines"], found["saved_s"]) == ({"member": 1}, 0)
    pairs = dict(run("stats").rows)
    assert pairs["waits"] == "2 for other builders, 42.0 s in total"
    assert (pairs["takeovers"], pairs["quarantines"]) == ("1 from builders that died", "1")


def test_what_happened_since_a_time_is_shown(
    run: Callable[..., Result], store: DiskStore, put: Callable[..., str]
) -> None:
    """By a duration or a day; the cache content is current."""
    put(1)
    now_ns = time.time_ns()
    for ago_s in (10, 3 * 86400, 30 * 86400):
        event_log = EventLog(
            Folders(store.root, shared=False), clock_ns=partial(int, now_ns - ago_s * 10**9), writable=True
        )
        event_log.append("hit", kind="test", saved_s=1.0)
    hits = {since: run("stats", "--since", since, "--json").json["hits"] for since in ("12h", "7d", "1970-01-01")}
    assert hits == {"12h": 1, "7d": 2, "1970-01-01": 3}
    assert run("stats", "--json").json["since"] is None
    rows = dict(run("stats", "--since", "1970-01-01").rows)
    assert (rows["since"], rows["entries"]) == ("1970-01-01T00:00:00+00:00", "1 (0 pinned)")


@pytest.mark.parametrize("since", ["soon", "7", "2026-13-01", "9999-01-01"])
def test_a_time_that_is_none_is_refused(run: Callable[..., Result], since: str) -> None:
    """With what one looks like, and the exit code of wrong usage."""
    result = run("stats", "--since", since)
    assert result.code == 2
    assert "--since" in result.err
