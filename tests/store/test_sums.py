"""Event logs that grow: followed by others, summed, and counted once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.store.users import ALICE, as_user, needs_root, public_directory
from trtcache.store.catalog import counters, counters_since
from trtcache.store.disk import DiskStore
from trtcache.store.events import KEPT, EventCount, EventLog, log_name, read_sums, retire, tails
from trtcache.store.files import Folders
from trtcache.store.record import INDEX_NAME

if TYPE_CHECKING:
    from pathlib import Path

DAY_NS = 86400 * 10**9
FIRST_NS = 11574 * DAY_NS  # 2001-09-09 00:00 UTC
HITS = ("2001-09-09", "hit", "", "test")


def log_in(root: Path, now_ns: int = FIRST_NS, limit_bytes: int = 300) -> EventLog:
    """Return a log of host h that is full after four or five hits."""
    folders = Folders(root, shared=False)
    return EventLog(folders, clock_ns=lambda: now_ns, writable=True, host="h", limit_bytes=limit_bytes)


def hit(log: EventLog, count: int) -> None:
    """Append so many hits, which saved a second each."""
    for _ in range(count):
        log.append("hit", kind="test", saved_s=1.0)


def test_logs_are_bounded_and_no_event_is_lost(tmp_path: Path) -> None:
    """However many events there are, a host has a few logs of a limited size and one of sums, and all are counted."""
    store = DiskStore.open(tmp_path)
    hit(log_in(tmp_path), 200)
    sizes = {path.name: path.stat().st_size for path in store.events.logs()}
    assert len(sizes) == KEPT
    assert max(sizes.values()) < 400
    assert counters(store) == {HITS: EventCount(200, 200.0)}
    assert sum(one.counters[HITS].count for one in read_sums(tmp_path / "events")) > 150


@pytest.mark.parametrize("forged", [(999_999_999,), (999_999_998, 999_999_999), (50, 60, 70, 80, 90)])
def test_a_forged_number_does_not_end_the_rotation(tmp_path: Path, forged: tuple[int, ...]) -> None:
    """A log of the highest number that there is, or of any that does not follow, is not written to."""
    store = DiskStore.open(tmp_path)
    hit(log_in(tmp_path), 10)
    for number in forged:
        (tmp_path / "events" / log_name("h", number)).touch()
    for _ in range(40):
        hit(log_in(tmp_path), 5)
    sizes = {path.name: path.stat().st_size for path in store.events.logs()}
    assert len(sizes) == KEPT + len(forged)
    assert max(sizes.values()) < 700
    assert all(sizes[log_name("h", number)] == 0 for number in forged)
    assert counters(store) == {HITS: EventCount(210, 210.0)}


def test_a_log_that_is_in_the_sums_is_not_written_again(tmp_path: Path) -> None:
    """If logs are deleted and their sums stay, the numbers go on, and every later event is counted."""
    store = DiskStore.open(tmp_path)
    hit(log_in(tmp_path), 60)
    for path in store.events.logs():
        path.unlink()
    summed = sum(one.counters[HITS].count for one in read_sums(tmp_path / "events"))
    assert summed > 0
    hit(log_in(tmp_path), 60)
    assert counters(store) == {HITS: EventCount(summed + 60, summed + 60.0)}


def test_seconds_without_a_sum_count_as_none(tmp_path: Path) -> None:
    """Of a log and of sums; the index is not rebuilt for them."""
    store = DiskStore.open(tmp_path)
    hit(log_in(tmp_path), 1)
    with store.events.logs()[0].open("ab") as file:
        for text in ("NaN", "Infinity", "-5", "1e300"):
            file.write(b'{"t": %d, "event": "hit", "kind": "test", "saved_s": %s}\n' % (FIRST_NS, text.encode()))
    line = '{"log": "g.jsonl", "bytes": 9, "counts": [["2001-09-09", "hit", "", "test", 1, NaN]]}\n'
    (tmp_path / "events" / "g.sums").write_text(line)
    for _ in range(2):
        assert counters(store) == {HITS: EventCount(6, 1.0)}
    assert not (tmp_path / "quarantine").exists()


@needs_root
def test_an_unreadable_log_costs_only_its_own_events() -> None:
    """Another member of a shared store can leave one."""
    with public_directory() as directory:
        log = log_in(directory)
        hit(log, 3)
        log.directory.chmod(0o755)
        log.logs()[0].chmod(0o644)
        for name in ("other.jsonl", "other.sums"):
            (log.directory / name).write_bytes(b"")
            (log.directory / name).chmod(0)

        def count() -> None:
            counted = tails(log.logs(), {}, read_sums(log.directory))
            assert counted is not None
            assert counted[0] == {HITS: EventCount(3, 3.0)}
            assert len(list(log.read())) == 3

        as_user(ALICE, count)


def test_folding_goes_on_over_logs_that_go(tmp_path: Path) -> None:
    """A log that was folded whole, in part or not at all before it was summed counts once, with an index or without."""
    store = DiskStore.open(tmp_path)
    log, total = log_in(tmp_path), 0
    for count in (3, 1, 7, 40, 2, 60):
        hit(log, count)
        total += count
        assert counters(store) == {HITS: EventCount(total, float(total))}
    (tmp_path / INDEX_NAME).unlink()
    assert counters(store) == {HITS: EventCount(total, float(total))}
    assert counters(DiskStore.open(tmp_path, readonly=True)) == {HITS: EventCount(total, float(total))}


def test_a_process_that_slept_goes_on_in_the_newest_log(tmp_path: Path) -> None:
    """Its own log has been removed meanwhile, and is not created again."""
    store = DiskStore.open(tmp_path)
    sleeper = log_in(tmp_path)
    hit(sleeper, 1)
    hit(log_in(tmp_path), 60)
    hit(sleeper, 1)
    assert "h.jsonl" not in [path.name for path in store.events.logs()]
    assert counters(store) == {HITS: EventCount(62, 62.0)}


def test_a_log_that_was_summed_and_not_removed_counts_once(tmp_path: Path) -> None:
    """A crash between the two leaves that; the next one to sum removes it."""
    store = DiskStore.open(tmp_path)
    hit(log_in(tmp_path, limit_bytes=10**6), 5)
    first = tmp_path / "events" / "h.jsonl"
    kept = first.read_bytes()
    (tmp_path / "events" / "h+1.jsonl").touch()
    retire(tmp_path / "events", "h", kept=1)
    first.write_bytes(kept)
    assert counters(store) == {HITS: EventCount(5, 5.0)}
    retire(tmp_path / "events", "h", kept=1)
    assert not first.exists()
    assert counters(store) == {HITS: EventCount(5, 5.0)}


def test_junk_in_sums_is_skipped(tmp_path: Path) -> None:
    """Torn lines, and lines of another meaning, cost no other line."""
    store = DiskStore.open(tmp_path)
    hit(log_in(tmp_path), 60)
    path = tmp_path / "events" / "h.sums"
    good = path.read_bytes()
    path.write_bytes(
        b'junk\n[]\n{"log": "x", "bytes": "y", "counts": []}\n{"log": "z", "counts": [[1]]}\n' + good + good
    )
    assert counters(store) == {HITS: EventCount(60, 60.0)}


def test_a_log_of_any_length_costs_little_memory(tmp_path: Path) -> None:
    """A member of a shared store can make one of a terabyte at no cost: events go on, and what is there is counted."""
    store = DiskStore.open(tmp_path)
    hit(log_in(tmp_path), 30)
    for path in (tmp_path / "events").glob("*.jsonl"):
        os.truncate(path, 1 << 40)
    hit(log_in(tmp_path), 5)
    found = {HITS: EventCount(34, 34.0)}  # one went behind the hole
    assert counters(store) == counters_since(store, FIRST_NS) == found
    os.truncate(tmp_path / "events" / "h.sums", 1 << 40)
    hit(log_in(tmp_path), 50)
    assert counters_since(store, FIRST_NS)[HITS].count > 34


def test_what_happened_since_a_time_is_counted(tmp_path: Path) -> None:
    """To the event in logs that are kept, and by whole days in sums; other hosts' count too."""
    store = DiskStore.open(tmp_path)
    hit(log_in(tmp_path), 60)
    hit(log_in(tmp_path, FIRST_NS + DAY_NS, limit_bytes=10**6), 3)
    hit(log_in(tmp_path, FIRST_NS + DAY_NS + 10, limit_bytes=10**6), 2)
    assert counters_since(store, FIRST_NS + DAY_NS + 10) == {("2001-09-10", "hit", "", "test"): EventCount(2, 2.0)}
    assert counters_since(store, FIRST_NS + DAY_NS)["2001-09-10", "hit", "", "test"].count == 5
    assert counters_since(store, FIRST_NS)[HITS] == EventCount(60, 60.0)


def test_a_host_with_a_number_in_its_name_is_another(tmp_path: Path) -> None:
    """Its logs are not mixed with those of the host without the number."""
    for host in ("h", "h.1", "h-1"):
        EventLog(Folders(tmp_path, False), clock_ns=lambda: 1, writable=True, host=host).append("hit")
    retire(tmp_path / "events", "h", kept=1)
    assert len(list((tmp_path / "events").glob("*.jsonl"))) == 3
