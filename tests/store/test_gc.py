"""Pruning: what a plan evicts, and how it is carried out."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtcache.digests import CacheKey
from trtcache.store.catalog import HALF_LIFE_S, load_records, plan_prune, prune_after_put, remove, worth
from trtcache.store.files import hold
from trtcache.store.record import INDEX_NAME, Record, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.store.disk import DiskStore

DAY_NS = 86400 * 10**9
NOW_NS = 1000 * DAY_NS


def record(number: int, *, size: int = 100, build_s: float = 1.0, age_days: float = 0, idle_days: float = 0) -> Record:
    """Return a record that differs from others by its number."""
    return Record(
        digest=f"{number:064x}",
        kind="test",
        name=f"model {number}",
        file_bytes=size,
        size_bytes=size,
        created_ns=NOW_NS - int(age_days * DAY_NS),
        used_ns=NOW_NS - int(idle_days * DAY_NS),
        build_s=build_s,
        members=1,
    )


def put(store: DiskStore, number: int) -> str:
    """Put an entry and return its digest."""
    key = CacheKey.of("test", {"n": number})
    store.put(key, {"a": b"x" * 10}, kind="test")
    return key.digest


def evicted(*records: Record, **limits: object) -> list[tuple[int, str]]:
    """Return the numbers of the records that go, with the reason."""
    plan = plan_prune(records, now_ns=NOW_NS, **limits)  # type: ignore[arg-type]
    return [(int(one.record.digest, 16), one.reason) for one in plan.evict]


def test_the_entry_that_saves_least_time_per_byte_is_evicted_first() -> None:
    """A large entry is evicted before a small one with the same build time."""
    assert evicted(record(1, size=100), record(2, size=900), max_size_bytes=500) == [(2, "max-size")]


def test_an_entry_with_a_long_build_is_kept() -> None:
    """Of two entries of one size the cheaper one is evicted."""
    assert evicted(record(1, build_s=60), record(2, build_s=2), max_size_bytes=100) == [(2, "max-size")]


def test_an_idle_entry_is_evicted() -> None:
    """Of two equal entries the one not used for longer is evicted."""
    assert evicted(record(1, idle_days=3), record(2), max_size_bytes=100) == [(1, "max-size")]


def test_a_week_of_idleness_halves_the_worth() -> None:
    """The half-life is exact, and a clock that was set back does not increase the worth."""
    fresh, idle, future = record(1), record(2, idle_days=HALF_LIFE_S / 86400), record(3, idle_days=-5)
    assert worth(idle, now_ns=NOW_NS) == pytest.approx(worth(fresh, now_ns=NOW_NS) / 2)
    assert worth(future, now_ns=NOW_NS) == worth(fresh, now_ns=NOW_NS)


def test_pins_stay_even_if_the_rest_is_too_large() -> None:
    """No limit and no filter removes a pinned entry."""
    pinned = replace(record(1, size=10**9, age_days=900, idle_days=900), pinned=True)
    assert evicted(pinned, max_size_bytes=0, older_than_s=1, unused_for_s=1, where=lambda _: True) == []


def test_what_was_just_put_stays() -> None:
    """An entry larger than the whole limit is kept for now, or it would be built again and again."""
    assert evicted(record(1, size=999), record(2), max_size_bytes=50, keep=[f"{1:064x}"]) == [(2, "max-size")]


def test_age_and_idle_time_are_separate_limits() -> None:
    """Entries built or used too long ago are evicted regardless of worth, with the matching reason."""
    records = record(1, age_days=40), record(2, idle_days=8, age_days=10), record(3)
    assert evicted(*records, older_than_s=30 * 86400) == [(1, "older-than")]
    assert evicted(*records, older_than_s=30 * 86400, unused_for_s=7 * 86400) == [(1, "older-than"), (2, "unused-for")]


def test_a_filter_alone_selects_all_matches() -> None:
    """With a limit the filter only restricts the candidates."""
    records = record(1, size=10), record(2, size=20), record(3, size=30)
    assert evicted(*records, where=lambda one: one.file_bytes >= 20) == [(2, "filter"), (3, "filter")]
    assert evicted(*records, where=lambda one: one.file_bytes < 20, max_size_bytes=0) == [(1, "max-size")]


def test_expired_entries_count_towards_the_size() -> None:
    """No more entries are evicted once the expired ones have freed enough space."""
    assert evicted(record(1, age_days=9), record(2), max_size_bytes=100, older_than_s=86400) == [(1, "older-than")]


def test_without_a_limit_nothing_goes() -> None:
    """An empty plan keeps everything and adds up."""
    plan = plan_prune([record(1), record(2)], now_ns=NOW_NS)
    assert (plan.evict, len(plan.kept), plan.bytes_before, plan.bytes_after) == ((), 2, 200, 200)


RECORDS = st.lists(
    st.builds(
        replace,
        st.just(record(0)),
        file_bytes=st.integers(0, 10**6),
        build_s=st.floats(0, 10**4),
        used_ns=st.integers(0, 2 * NOW_NS),
        created_ns=st.integers(0, 2 * NOW_NS),
        pinned=st.booleans(),
    ),
    max_size=12,
).map(lambda found: [replace(one, digest=f"{number:064x}") for number, one in enumerate(found)])


@given(records=RECORDS, limit_bytes=st.integers(0, 10**7))
def test_a_plan_divides_the_records_and_reaches_its_limit(records: list[Record], limit_bytes: int) -> None:
    """Each record is evicted or kept, pins are kept, and the limit is met where possible, without excess evictions."""
    plan = plan_prune(records, now_ns=NOW_NS, max_size_bytes=limit_bytes)
    gone = [one.record for one in plan.evict]
    assert sorted(one.digest for one in (*gone, *plan.kept)) == sorted(one.digest for one in records)
    assert not any(one.pinned for one in gone)
    assert plan.bytes_after <= limit_bytes or all(one.pinned for one in plan.kept)
    if gone:
        assert plan.bytes_after + gone[-1].file_bytes > limit_bytes


def fill(store: DiskStore, count: int, size: int = 1000) -> list[str]:
    """Put ``count`` entries, the later the longer to build, and return their digests."""
    keys = [CacheKey.of("test", {"n": number}) for number in range(count)]
    for number, key in enumerate(keys):
        store.put(key, {"a": bytes([number]) * size}, kind="test", build_s=float(number))
    return [key.digest for key in keys]


def test_key_aliases_do_not_count_as_entries() -> None:
    """The engines are counted; of what accompanies them, eight for each may stay."""
    engines = [record(number, size=100_000, build_s=8) for number in range(2)]
    aliases = [replace(record(number, size=1000, build_s=0.7), kind="alias") for number in range(10, 21)]
    assert evicted(*engines, *aliases, max_entries=2) == []
    gone = evicted(*engines, *aliases, max_entries=1)
    assert sorted(number for number, _ in gone) == [0, 10, 11, 12]
    assert {reason for _, reason in gone} == {"max-entries"}
    gone = evicted(*engines, *aliases, max_entries=2, max_companions=9)
    assert sorted(number for number, _ in gone) == [10, 11]  # no engine


def test_executing_a_plan_removes_rows_then_files_and_counts(store: DiskStore) -> None:
    """After a prune neither row nor file is left, and each eviction is an event with its reason."""
    digests = fill(store, 3)
    plan = plan_prune(load_records(store), now_ns=store.clock_ns(), where=lambda one: one.digest == digests[0])
    assert plan.execute(store) == plan.freed_bytes > 0
    assert {stored.digest for stored in store.scan()} == set(digests[1:])
    assert set(read_rows(store.root / INDEX_NAME) or {}) == set(digests[1:])
    assert [(event.event, event.reason, event.key) for event in store.events.read()] == [
        ("evict", "filter", digests[0])
    ]


def test_an_entry_pinned_after_the_plan_was_made_stays(store: DiskStore) -> None:
    """Execution looks at the pins again."""
    (digest,) = fill(store, 1)
    plan = plan_prune(load_records(store), now_ns=store.clock_ns(), max_size_bytes=0)
    store.pin(digest)
    assert plan.execute(store) == 0
    assert store.stat(digest)


def test_a_file_that_is_gone_frees_nothing_and_is_not_counted(store: DiskStore) -> None:
    """Two prunes at once do not count an entry twice."""
    (digest,) = fill(store, 1)
    plan = plan_prune(load_records(store), now_ns=store.clock_ns(), max_size_bytes=0)
    store.remove(digest)
    assert plan.execute(store) == 0
    assert not list(store.events.read())


def test_an_index_that_cannot_be_written_does_not_keep_the_files(
    store: DiskStore, caplog: pytest.LogCaptureFixture
) -> None:
    """On a full or read-only disk pruning must still free space: rows without files heal by themselves."""
    fill(store, 2)
    plan = plan_prune(load_records(store), now_ns=store.clock_ns(), max_size_bytes=0)
    (store.root / "locks").rename(store.root / "locks.away")
    (store.root / "locks").write_text("in the way of the lock file")
    (store.root / INDEX_NAME).write_bytes(b"not a database" * 100)
    assert plan.execute(store) > 0
    assert not list(store.scan())
    assert "the index cannot be used" in caplog.text


def test_a_put_below_the_limit_prunes_nothing(store: DiskStore) -> None:
    """The common case reads the directory only."""
    fill(store, 2)
    assert prune_after_put(store, 10**9, None) == 0
    assert not (store.root / INDEX_NAME).exists()


def test_a_put_above_the_limit_prunes_to_nine_tenths(store: DiskStore) -> None:
    """There is space for some more puts afterwards, the cheapest entries are evicted, and the new one is kept."""
    digests = fill(store, 10)
    each_bytes = store.stat(digests[0]).file_bytes
    prune_after_put(store, 9 * each_bytes, None, keep=[digests[0]])
    assert {stored.digest for stored in store.scan()} == {digests[0], *digests[3:]}


def test_one_process_prunes_at_a_time(store: DiskStore) -> None:
    """While another process prunes, a put does not wait."""
    fill(store, 3)
    with hold(store.root / "locks" / "prune.lock", timeout_s=0):
        assert prune_after_put(store, 1, None) == 0
    assert prune_after_put(store, 1, None) > 0


def _prune_all(root: Path) -> None:
    from trtcache.store.disk import DiskStore

    prune_after_put(DiskStore.open(root), 0, None)


def test_processes_that_prune_together_leave_a_sound_store(store: DiskStore) -> None:
    """Rows and files agree after four processes pruned everything at once, and each entry was evicted once."""
    fill(store, 20)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_prune_all, args=(store.root,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert load_records(store) == []
    assert sum(event.event == "evict" for event in store.events.read()) == 20


def test_removing_nothing_makes_no_index(store: DiskStore) -> None:
    """An empty plan costs nothing."""
    assert remove(store, []) == 0
    assert not (store.root / INDEX_NAME).exists()


def test_a_limit_of_entries_takes_those_of_least_worth() -> None:
    """Ten entries and a limit of four: the six of least worth go, less those that go for another reason."""
    records = [record(number, build_s=float(number)) for number in range(10)]
    assert evicted(*records, max_entries=4) == [(number, "max-entries") for number in range(6)]
    gone = evicted(*records, max_entries=4, stale={records[9].digest: "stale-toolchain"})
    assert gone == [(9, "stale-toolchain"), *((number, "max-entries") for number in range(5))]


def test_stale_entries_alone_go_alone() -> None:
    """Without another limit only they go, and a pinned one stays."""
    one, pinned, other = record(1), replace(record(2), pinned=True), record(3)
    stale = dict.fromkeys((one.digest, pinned.digest), "stale-toolchain")
    assert evicted(one, pinned, other, stale=stale) == [(1, "stale-toolchain")]


def test_a_put_beyond_the_number_prunes_below_it(store: DiskStore) -> None:
    """Eleven entries and a limit of ten: nine are left."""
    fill(store, 11)
    assert prune_after_put(store, None, 10) > 0
    assert len(list(store.scan())) == 9


def test_an_entry_that_is_pinned_during_the_removal_stays(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pins are looked at just before each file is deleted."""
    digests = [put(store, number) for number in range(3)]
    plan = plan_prune(load_records(store), now_ns=NOW_NS, max_entries=0)
    real_remove, last = store.remove, plan.evict[-1].record.digest

    def pin_and_remove(digest: str) -> int:
        store.pin(last)
        return real_remove(digest)

    monkeypatch.setattr(store, "remove", pin_and_remove)
    assert plan.execute(store) > 0
    assert [stored.digest for stored in store.scan()] == [last]
    assert remove(store, plan.evict[-1:]) == 0
    assert remove(store, plan.evict[-1:], forced=True) > 0
    assert len(digests) == len(plan.evict)


def test_an_entry_that_cannot_be_removed_does_not_end_a_prune(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are removed, after a put also some in its place, and the error comes at the end."""
    for number in range(10):
        put(store, number)
    stuck = plan_prune(load_records(store), now_ns=NOW_NS, max_entries=9).evict[0].record.digest
    real_remove = store.remove

    def remove_others(digest: str) -> int:
        if digest == stuck:
            raise PermissionError(13, "Permission denied")
        return real_remove(digest)

    monkeypatch.setattr(store, "remove", remove_others)
    before_bytes = sum(stored.file_bytes for stored in store.scan())
    freed_bytes = prune_after_put(store, None, 5)
    left = {stored.digest: stored.file_bytes for stored in store.scan()}
    assert (len(left), stuck in left) == (4, True)
    assert freed_bytes == before_bytes - sum(left.values())
    plan = plan_prune(load_records(store), now_ns=NOW_NS, max_entries=0)
    with pytest.raises(PermissionError):
        plan.execute(store)
    assert [stored.digest for stored in store.scan()] == [stuck]
