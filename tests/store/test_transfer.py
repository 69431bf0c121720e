"""Transfers between stores: missing entries only, verified and atomic."""

from __future__ import annotations

import errno
import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.effort import tries
from tests.store.sources import files_of, fill, in_memory
from trtcache.config.signing_keys import SecretKey, Trust
from trtcache.digests import CacheKey, hash_bytes
from trtcache.errors import IndexUnavailableError
from trtcache.store import sync as transfer
from trtcache.store.catalog import load_records
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore
from trtcache.store.format import PRELUDE_BYTES, parse_prelude
from trtcache.store.record import INDEX_NAME, parse_filters, read_rows
from trtcache.store.root import share
from trtcache.store.sync import SyncPlan, SyncResult, plan_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS, OTHER = (SecretKey(name, bytes([number]) * 32) for number, name in enumerate(("ours", "other"), 1))


@pytest.fixture
def source(tmp_path: Path) -> DiskStore:
    """Five entries."""
    return fill(tmp_path / "source", 5)


@pytest.fixture
def target(tmp_path: Path) -> DiskStore:
    """An empty store to copy to."""
    return DiskStore.open(tmp_path / "target")


def synced(source: DiskStore, target: DiskStore, **options: bool) -> SyncResult:
    """Copy the missing entries to ``target``, from a store opened read-only."""
    return plan_sync([DiskStore.open(source.root, readonly=True)], target, **options).execute()


def digests(store: DiskStore) -> list[str]:
    """Return the keys of a store's entries, in order."""
    return sorted(stored.digest for stored in store.scan())


def state(root: Path) -> dict[str, tuple[int, int]]:
    """Return what would show that something below a directory was written."""
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in root.rglob("*")}


def reasons(done: SyncPlan | SyncResult) -> list[str]:
    """Return why entries were refused."""
    return [one.reason for one in done.refused]


def test_the_same_bytes_arrive_with_rows_and_the_source_is_untouched(source: DiskStore, target: DiskStore) -> None:
    """Each is a hit, is listed without a read, and is counted as a copy."""
    before = state(source.root)
    done = synced(source, target)
    assert state(source.root) == before
    assert files_of(target.root) == files_of(source.root)
    assert set(read_rows(target.root / INDEX_NAME) or {}) == set(digests(source))
    assert len(load_records(target)) == len(done.arrived) == 5
    assert isinstance(target.get(CacheKey.of("test", {"n": 3})), Entry)
    assert [event.event for event in target.events.read()] == ["copy"] * 5
    assert not list(target.root.rglob(".tmp-*"))


def test_a_second_time_nothing_is_copied(source: DiskStore, target: DiskStore) -> None:
    """All is there, and no file of the target is touched."""
    synced(source, target)
    before = state(target.root)
    plan = plan_sync([source], target)
    assert (plan.items, plan.present) == ((), 5)
    assert plan.execute().arrived == ()
    assert state(target.root) == before


def test_of_several_sources_the_first_sound_one_gives_an_entry(
    source: DiskStore, target: DiskStore, tmp_path: Path
) -> None:
    """One that is damaged in the first comes from the second, without a word of the damage."""
    second = fill(tmp_path / "second", 7)
    victim = source.path(digests(source)[0])
    raw = bytearray(victim.read_bytes())
    raw[-1] ^= 1
    victim.write_bytes(raw)
    done = plan_sync([source, second], target).execute()
    assert reasons(done) == []
    assert files_of(target.root) == files_of(second.root)


def test_a_filter_selects_entries(source: DiskStore, target: DiskStore) -> None:
    """By the content of their headers."""
    where = parse_filters(["name~2"], now_ns=0)
    plan = plan_sync([source], target, where=where)
    assert [item.record.name for item in plan.items] == ["model 2"]
    plan.execute()
    assert plan_sync([source], target, where=where).present == 1
    assert len(plan_sync([source], target).items) == 4


def test_pins_are_copied_on_request(source: DiskStore, target: DiskStore) -> None:
    """For new and for existing entries, and no pin is removed."""
    first, second, third, *_ = digests(source)
    source.pin(first)
    synced(source, target)
    assert target.pins() == frozenset()
    source.pin(second)
    target.pin(third)
    target.remove(second)
    done = synced(source, target, pins=True)
    assert done.pinned == (first, second)
    assert target.pins() == {first, second, third}
    assert [record.pinned for record in done.arrived] == [True]


def test_limits_are_kept_as_by_a_put(source: DiskStore, target: DiskStore) -> None:
    """Older entries go, those of the last batch stay, and those that were pinned."""
    old = CacheKey.of("test", {"n": "old"})
    target.put(old, {"artifact": b"old" * 9999}, kind="test")
    done = plan_sync([source], target).execute(max_entries=5)
    assert done.freed_bytes
    assert digests(target) == digests(source)


@pytest.mark.parametrize("what", ["flipped", "cut", "renamed", "link", "hard link", "fifo", "other's"])
def test_what_is_no_sound_entry_does_not_arrive(
    what: str, source: DiskStore, target: DiskStore, tmp_path: Path
) -> None:
    """It is named with its reason, stops no other, and nothing is left of it."""
    victim, expected = source.path(digests(source)[1]), "corrupt:file"
    raw = victim.read_bytes()
    victim.unlink()
    match what:
        case "flipped":
            victim.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
            expected = "corrupt:member"
        case "cut":
            victim.write_bytes(raw[:-1])
            expected = "corrupt:size"
        case "renamed":
            victim.write_bytes(source.path(digests(source)[0]).read_bytes())
            expected = "corrupt:key"
        case "link":
            (tmp_path / "elsewhere").write_bytes(raw)
            victim.symlink_to(tmp_path / "elsewhere")
        case "hard link":
            victim.write_bytes(raw)
            (tmp_path / "second name").hardlink_to(victim)
        case "fifo":
            os.mkfifo(victim)
        case _:
            victim.write_bytes(raw)
            victim.chmod(0o666)
    done = synced(source, target)
    assert len(done.arrived) == 4
    assert reasons(done) == ([] if what in {"link", "fifo"} else [expected])  # the scan takes those for no entries
    assert len(digests(target)) == 4
    assert not list(target.root.rglob(".tmp-*"))


def test_what_was_exchanged_after_the_plan_is_looked_at_again(source: DiskStore, target: DiskStore) -> None:
    """A deleted file is skipped; a replaced one is verified again."""
    plan = plan_sync([source], target)
    first, second, *_ = digests(source)
    source.path(first).unlink()
    source.path(second).write_bytes(b"something else")
    done = plan.execute()
    assert reasons(done) == ["corrupt:magic"]
    assert len(done.arrived) == 3


def test_an_entry_that_the_target_could_not_serve_is_replaced(source: DiskStore, target: DiskStore) -> None:
    """One with a damaged header, as a miss would be."""
    synced(source, target)
    victim = target.path(digests(target)[2])
    victim.write_bytes(victim.read_bytes()[:70])
    assert len(synced(source, target).arrived) == 1
    assert files_of(target.root) == files_of(source.root)


def test_a_full_disk_ends_it_and_the_next_run_goes_on(
    source: DiskStore, target: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrived before is whole and has its row."""
    real, calls = os.pwrite, 0

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise OSError(28, "No space left on device")
        return real(fd, data, offset)

    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", pwrite)
        with pytest.raises(OSError, match="No space left"):
            synced(source, target)
    assert len(digests(target)) == len(read_rows(target.root / INDEX_NAME) or {}) == 2
    assert not list(target.root.rglob(".tmp-*"))
    assert len(synced(source, target).arrived) == 3


def test_what_goes_between_two_looks_is_not_missed(
    source: DiskStore, target: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry removed during planning is skipped; an unreadable one is reported."""
    first, second, *_ = digests(source)
    listed, real = list(source.scan()), os.open

    def refused(path: Path, *args: int, **options: int) -> int:
        if str(path).endswith(f"{second}.trtc") and str(path).startswith(str(source.root)):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *args, **options)

    source.path(first).unlink()
    monkeypatch.setattr(source, "scan", lambda: listed)
    monkeypatch.setattr(os, "open", refused)
    plan = plan_sync([source], target)
    assert [(one.digest, one.reason, one.why) for one in plan.refused] == [(second, "unreadable", "Input/output error")]
    assert len(plan.items) == 3


def test_an_entry_of_a_later_format_stays_where_it_is(source: DiskStore, target: DiskStore) -> None:
    """In the source it is named, and in the target it is not replaced."""
    later, other, *_ = digests(source)
    for store, digest in ((source, later), (target, other)):
        raw = bytearray(source.path(digest).read_bytes())
        prelude = parse_prelude(bytes(raw[:PRELUDE_BYTES]), len(raw), "")
        raw[8] += 1
        raw[32:PRELUDE_BYTES] = hash_bytes(bytes(raw[:32] + raw[PRELUDE_BYTES : prelude.members_from]))
        with store.place(digest) as place:
            place.write_bytes(raw)
            place.chmod(0o600)
    done = plan_sync([source], target).execute()
    assert reasons(done) == ["format"]
    assert len(done.arrived) == 3


def test_an_index_that_cannot_be_written_costs_rows_only(
    source: DiskStore, target: DiskStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next listing reads the entries that arrived."""

    def refused(root: Path, **_: object) -> None:
        raise IndexUnavailableError(str(root), "disk I/O error")

    monkeypatch.setattr(transfer, "write_rows", refused)
    assert len(synced(source, target).arrived) == 5
    assert "the index cannot be used: disk I/O error" in caplog.text
    assert len(load_records(target)) == 5


def test_a_shared_store_gets_files_of_its_modes(source: DiskStore, tmp_path: Path) -> None:
    """Whatever this user's umask is."""
    share(tmp_path / "shared", os.getgid())
    target = DiskStore.open(tmp_path / "shared", trust=Trust(required=False))
    assert len(synced(source, target).arrived) == 5
    paths = list((target.root / "entries").rglob("*.trtc"))
    assert {path.stat().st_mode & 0o7777 for path in paths} == {0o660}
    assert {path.parent.stat().st_mode & 0o7777 for path in paths} == {0o2770}


def signed(root: Path, key: SecretKey | None) -> DiskStore:
    """Return a private store with one entry, that a key signed."""
    trust = Trust()
    if key is not None:
        secret = root.with_name(f"{root.name}.secret")
        key.write(secret)
        trust = Trust(signing_key=secret)
    store = DiskStore.open(root, trust=trust)
    store.put(CacheKey.of("test", {"n": 1}), {"artifact": b"engine"}, kind="test")
    return store


@pytest.mark.parametrize(
    ("key", "refused"), [(OURS, []), (OTHER, ["untrusted:unknown-key"]), (None, ["untrusted:unsigned"])]
)
def test_where_signatures_are_required_only_signed_entries_arrive(
    key: SecretKey | None, refused: list[str], tmp_path: Path
) -> None:
    """By a key that counts there; the process needs no key of its own."""
    source = signed(tmp_path / "source", key)
    target = DiskStore.open(tmp_path / "target", trust=Trust(required=True, keys=(OURS.public,)))
    done = plan_sync([source], target).execute()
    assert reasons(done) == refused
    assert len(digests(target)) == 1 - len(refused)


def test_a_signed_header_that_was_changed_does_not_arrive(tmp_path: Path) -> None:
    """Also under a digest that fits."""
    from tests.store.test_signatures import Front

    source = signed(tmp_path / "source", OURS)
    path = next((source.root / "entries").rglob("*.trtc"))
    front = Front.of(path.read_bytes())
    path.write_bytes(replace(front, header=front.header.replace(b'"build_s":0.0', b'"build_s":9.0')).bytes())
    target = DiskStore.open(tmp_path / "target", trust=Trust(required=True, keys=(OURS.public,)))
    assert reasons(plan_sync([source], target).execute()) == ["untrusted:bad-signature"]


def test_an_entry_whose_signature_does_not_count_there_gives_way(tmp_path: Path) -> None:
    """As it does to a build."""
    target = signed(tmp_path / "target", OTHER)
    strict = DiskStore.open(target.root, trust=Trust(required=True, keys=(OURS.public,)))
    source = signed(tmp_path / "source", OURS)
    assert len(plan_sync([source], strict).execute().arrived) == 1
    assert strict.verdict(digests(strict)[0]).reason is None


def test_what_members_of_a_group_wrote_needs_a_signature_in_a_private_store(tmp_path: Path) -> None:
    """Even if that store requires none: it would trust the entry forever. Another unsigned shared store accepts it."""
    roots = [tmp_path / "source", tmp_path / "target"]
    for root in roots:
        share(root, os.getgid())
    source, shared = (DiskStore.open(root, trust=Trust(required=False)) for root in roots)
    source.put(CacheKey.of("test", {"n": 1}), {"artifact": b"engine"}, kind="test")
    private = DiskStore.open(tmp_path / "private")
    assert reasons(plan_sync([source], private)) == ["untrusted:unsigned"]
    assert len(plan_sync([source], shared).items) == 1


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory with free flushes."""
    with in_memory() as path:
        yield path


@pytest.mark.torture
def test_a_transfer_that_is_killed_again_and_again_ends_with_the_source(memory: Path) -> None:
    """Killed at 20 random points and started again each time: equal at the end, and the next time copies nothing."""
    count, kills, chance = tries(120, 1000), 20, random.Random(0)
    source, target = fill(memory / "source", count), memory / "target"
    calls = count * 7 // (kills + 5)  # an entry takes at least seven writes, flushes and renames
    for _ in range(kills):
        point = chance.randint(1, calls)
        child = os.fork()
        if child == 0:
            _killed_before_call(point)
            plan_sync([source], DiskStore.open(target)).execute()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert files_of(target).items() <= files_of(source.root).items()
    assert 0 < len(files_of(target)) < count
    done = plan_sync([source], DiskStore.open(target)).execute()
    assert done.refused == ()
    assert files_of(target) == files_of(source.root)
    assert plan_sync([source], DiskStore.open(target)).items == ()
    store = DiskStore.open(target)
    assert len(load_records(store)) == count
    store.sweep(temporary_s=-1)
    assert not list(target.rglob(".tmp-*"))


def test_names_are_flushed_before_a_sync_returns(
    source: DiskStore, target: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each directory in which an entry arrived is flushed after its last rename, and before the row is written."""
    calls: list[tuple[str, str]] = []
    fsync, write_rows = os.fsync, transfer.write_rows

    def flush(fd: int) -> None:
        calls.append(("flush", str(Path(f"/proc/self/fd/{fd}").readlink())))
        fsync(fd)

    def rename(path: Path, to: Path) -> Path:
        calls.append(("rename", str(to.parent)))
        path.replace(to)
        return to

    def write(root: Path, **options: Any) -> None:
        calls.append(("rows", ""))
        write_rows(root, **options)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(transfer, "write_rows", write)
    synced(source, target)
    rows = calls.index(("rows", ""))
    folders = {name for what, name in calls if what == "rename" and "/entries/" in name}
    assert len(folders) >= 2
    for name in folders:
        last = max(n for n, call in enumerate(calls) if call == ("rename", name))
        assert ("flush", name) in calls[last:rows]


def _killed_before_call(number: int) -> None:
    """Have this process killed before one of its next writes, flushes and renames."""
    left = number

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return done

    for name in ("pwrite", "fsync", "rename"):
        setattr(os, name, counted(getattr(os, name)))
