"""Counters: event logs summed once, however often they are folded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trtcache.store.catalog import counters
from trtcache.store.disk import DiskStore
from trtcache.store.events import EventCount, tails
from trtcache.store.record import INDEX_NAME

if TYPE_CHECKING:
    from pathlib import Path

DAY = 1_000_000_000_000_000_000  # 2001-09-09 01:46:40 UTC
HITS = ("2001-09-09", "hit", "", "test")


def at(root: Path) -> DiskStore:
    """Open a store whose clock stands still."""
    return DiskStore.open(root, clock_ns=lambda: DAY)


def test_events_are_counted_by_day_event_reason_and_kind(tmp_path: Path) -> None:
    """Seconds saved are summed with them."""
    store = at(tmp_path)
    store.events.append("hit", kind="test", saved_s=1.5)
    store.events.append("hit", kind="test", saved_s=2.0)
    store.events.append("miss", reason="absent", kind="test")
    expected = {HITS: EventCount(2, 3.5), ("2001-09-09", "miss", "absent", "test"): EventCount(1, 0.0)}
    assert counters(store) == expected


def test_folding_twice_counts_once(tmp_path: Path) -> None:
    """The index keeps how far each log was read."""
    store = at(tmp_path)
    store.events.append("hit", kind="test", saved_s=1.0)
    assert counters(store) == counters(store) == {HITS: EventCount(1, 1.0)}
    store.events.append("hit", kind="test", saved_s=1.0)
    assert counters(store) == {HITS: EventCount(2, 2.0)}


def test_counts_survive_the_loss_of_the_index(tmp_path: Path) -> None:
    """The logs are the truth."""
    store = at(tmp_path)
    store.events.append("hit", kind="test", saved_s=1.0)
    before = counters(store)
    (tmp_path / INDEX_NAME).unlink()
    assert counters(store) == before


def test_a_read_only_store_counts_without_writing(tmp_path: Path) -> None:
    """Its index is not created."""
    at(tmp_path).events.append("hit", kind="test", saved_s=1.0)
    assert counters(DiskStore.open(tmp_path, readonly=True)) == {HITS: EventCount(1, 1.0)}
    assert not (tmp_path / INDEX_NAME).exists()


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    """Half a line is neither counted nor skipped."""
    log = tmp_path / "host.jsonl"
    line = json.dumps({"t": DAY, "event": "hit", "kind": "test"}) + "\n"
    log.write_text(line + line[:20])
    counted, reached = tails([log], {})
    assert counted == {HITS: EventCount(1, 0.0)}
    log.write_text(line + line)
    assert tails([log], reached) == ({HITS: EventCount(1, 0.0)}, {"host.jsonl": 2 * len(line)})


def test_a_log_that_was_replaced_is_counted_from_its_beginning(tmp_path: Path) -> None:
    """An offset behind the end of a log belongs to another log of that name."""
    log = tmp_path / "host.jsonl"
    log.write_text(json.dumps({"t": DAY, "event": "hit", "kind": "test"}) + "\n")
    assert tails([log], {"host.jsonl": 10_000})[0] == {HITS: EventCount(1, 0.0)}


def test_lines_of_junk_are_skipped_and_odd_times_counted(tmp_path: Path) -> None:
    """One bad line or clock costs no other line."""
    log = tmp_path / "host.jsonl"
    odd = json.dumps({"t": 10**30, "event": "hit", "kind": "test"})
    log.write_text(f"junk\n[]\n{odd}\n" + json.dumps({"t": DAY, "event": "hit", "kind": "test"}) + "\n")
    assert tails([log], {})[0] == {HITS: EventCount(1, 0.0), ("", "hit", "", "test"): EventCount(1, 0.0)}
