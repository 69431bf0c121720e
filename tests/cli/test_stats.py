"""``trtcache stats``."""

from __future__ import annotations

import errno
import json
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from trtcache.cache import Cache
from trtcache.errors import BuildCancelledError
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
    assert [row[0] for row in run("stats").rows][:4] == ["cache directory", "since", "entries", "size"]
    Cache(root).get_or_build({"n": 2}, lambda: b"12", kind="alias")
    found = run("stats", "--json").json
    assert {kind: share["entries"] for kind, share in found["kinds"].items()} == {"test": 1, "alias": 1}
    assert sum(share["file_bytes"] for share in found["kinds"].values()) == found["file_bytes"]
    assert dict(run("stats").rows)["  alias"].startswith("1, ")


def test_people_get_lines(run: Callable[..., Result], root: Path) -> None:
    """Each reason has its own line."""
    use(root)
    pairs = dict(run("stats").rows)
    assert pairs["hits"] == "2 (66.7% of lookups)"
    assert pairs["  absent"] == "1"
    assert pairs["content"].endswith("to 1)")


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


def test_the_number_of_entries_is_that_of_ls(run: Callable[..., Result], root: Path, tmp_path: Path) -> None:
    """Key aliases are in a row of their own, and lower layers are included."""
    use(root)
    Cache(root).get_or_build({"n": 2}, lambda: b"12", kind="alias")
    Cache(tmp_path / "lower").get_or_build({"n": 3}, lambda: b"123", kind="test")
    found = run("stats", "--json").json
    assert found["entries"] == run("ls", "--json").json["total"] == 1
    assert found["hidden"] == run("ls", "--json").json["hidden"]
    assert dict(run("stats").rows)["ls --all"].startswith("1 more, ")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRTCACHE_DIR")
        patch.setenv("TRTCACHE_PATH", f"{root}:{tmp_path / 'lower'}")
        found = run("stats", "--json").json
        assert (found["entries"], found["entries_below"]) == (run("ls", "--json").json["total"], 1) == (2, 1)
        assert dict(run("stats").rows)["  in lower layers"] == "1"


def test_the_limit_is_shown_with_what_is_used(
    run: Callable[..., Result], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In percent of the size limit; a limit of entries has a row of its own."""
    use(root)
    size_bytes = run("stats", "--json").json["file_bytes"]
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", str(4 * size_bytes))
    monkeypatch.setenv("TRTCACHE_MAX_ENTRIES", "50")
    assert "(25.0% of " in dict(run("stats").rows)["size"]
    assert dict(run("stats").rows)["entry limit"] == "1 of 50"
    assert run("stats", "--json").json["used"] == 0.25
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", "0")
    assert "(no limit)" in dict(run("stats").rows)["size"]
    assert run("stats", "--json").json["used"] is None


def test_counters_are_set_back(run: Callable[..., Result], root: Path) -> None:
    """Only what happens afterwards counts, also without the index; the counters of Prometheus go on."""
    use(root)
    done = run("stats", "--zero")
    assert (done.code, done.out) == (0, "")
    assert "they were 2 hits, 1 miss, " in done.err
    found = run("stats", "--json").json
    assert (found["hits"], found["misses"], found["puts"], found["entries"]) == (0, {}, 0, 1)
    assert found["counted_since"].startswith("20")
    use(root)
    for path in root.glob("index.sqlite*"):
        path.unlink()
    assert run("stats", "--json").json["hits"] == 3
    assert run("stats", "--json", "--since", "1d").json["hits"] == 3
    assert run("stats", "--json", "--by", "name").json["by_name"]["-"]["hits"] == 3
    assert Cache(root).stats().hits == 3
    assert 'trtcache_hits_total{root="' in run("stats", "--prometheus").out
    assert "} 5.0" in next(line for line in run("stats", "--prometheus").out.splitlines() if "hits_total{" in line)
    before = run("stats", "--zero", "--json").json["before"]
    assert (before["hits"], before["misses"]) == (3, 0)
    assert run("stats", "--zero", "--since", "1d").code == 2


def test_a_full_disk_names_the_zero_point(
    run: Callable[..., Result], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the file and what makes room; the counters stay."""
    use(root)

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trtcache.store.events.publish_bytes", full)
    done = run("stats", "--zero")
    assert done.code == 1
    assert f"{root / 'events' / 'zero.json'}: No space left on device; free space with" in done.err
    assert run("stats", "--json").json["hits"] == 2


def test_the_zero_point_survives_the_reduction_of_logs(run: Callable[..., Result], store: DiskStore) -> None:
    """Sums have whole days only, of which a part was before."""

    def write(count: int) -> None:
        log = EventLog(Folders(store.root, shared=False), clock_ns=time.time_ns, writable=True, limit_bytes=300)
        for _ in range(count):
            log.append("hit", kind="test", saved_s=1.0)

    write(10)
    run("stats", "--zero")
    write(60)
    assert list(store.events.directory.glob("*.sums"))
    for since in ((), ("--since", "1d")):
        found = run("stats", "--json", *since).json
        assert (found["hits"], found["saved_s"]) == (60, 60.0)


def test_a_damaged_zero_point_counts_for_none(
    run: Callable[..., Result], root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning: the counters are then those of before."""
    use(root)
    run("stats", "--zero")
    (root / "events" / "zero.json").write_text('{"t": 1, "counts": [[1]]}')
    assert run("stats", "--json").json["hits"] == 2
    assert "zero.json is damaged" in caplog.text


def test_a_read_only_store_is_not_set_back(
    run: Callable[..., Result], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused with the exit code of an unusable store."""
    use(root)
    monkeypatch.setenv("TRTCACHE_READONLY", "1")
    assert run("stats", "--zero").code == 3
    assert run("stats", "--json").json["hits"] == 2


def test_each_name_and_kind_has_its_numbers(run: Callable[..., Result], root: Path, put: Callable[..., str]) -> None:
    """Whatever no entry accounts for is in a row of its own, so the sums agree."""
    for name in ("bert", "resnet", "bert"):
        Cache(root).get_or_build({"n": name}, lambda: CONTENT, kind="test", name=name)
    gone = put(7)
    Cache(root).get_or_build({"n": 7}, lambda: b"", kind="test")
    run("rm", "-y", gone)
    found = run("stats", "--json", "--by", "name").json
    shares = found["by_name"]
    assert (shares["bert"]["hits"], shares["bert"]["misses"], shares["resnet"]["hits"]) == (1, 1, 0)
    assert shares["(others)"] == {
        "entries": 0,
        "file_bytes": 0,
        "hits": 1,
        "misses": 0,
        "saved_s": pytest.approx(7, abs=1),
    }
    assert found["hits"] == sum(share["hits"] for share in shares.values()) == 2
    assert found["kinds"]["test"]["hits"] == 2
    assert run("stats", "--by", "kind").rows[0][:2] == ["test", "2"]
    assert {row[0] for row in run("stats", "--by", "name").rows} == set(shares)


def test_cancelled_builds_are_counted_apart_from_failed_ones(run: Callable[..., Result], root: Path) -> None:
    """A watcher's no and Ctrl-C cancel a build; another exception is a failure."""

    def build_with(error: type[BaseException], *arguments: str) -> None:
        def build() -> bytes:
            raise error(*arguments)

        with pytest.raises(error):
            Cache(root).get_or_build({"n": error.__name__}, build, kind="test")

    build_with(ValueError)
    build_with(KeyboardInterrupt)
    build_with(BuildCancelledError, "test", "by a watcher")
    found = run("stats", "--json").json
    assert (found["failed_builds"], found["cancelled_builds"]) == ({"ValueError": 1}, 2)
    rows = dict(run("stats").rows)
    assert (rows["failed builds"], rows["  ValueError"], rows["cancelled builds"]) == ("1", "1", "2")


@pytest.mark.parametrize("since", ["soon", "7", "2026-13-01", "9999-01-01"])
def test_a_time_that_is_none_is_refused(run: Callable[..., Result], since: str) -> None:
    """With what one looks like, and the exit code of wrong usage."""
    result = run("stats", "--since", since)
    assert result.code == 2
    assert "--since" in result.err


def test_a_zero_point_with_an_absurd_time_counts_as_damaged(
    run: Callable[..., Result], put: Callable[..., str], root: Path
) -> None:
    """Everything is counted."""
    put(1)
    (root / "events").mkdir(exist_ok=True)
    (root / "events" / "zero.json").write_text(json.dumps({"t": 10**30, "counts": []}))
    assert run("stats", "--json").code == 0
    assert run("stats").code == 0
