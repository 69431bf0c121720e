"""The store on disk: what is put is got, and whatever is wrong is a miss with a reason."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trtcache.digests import CacheKey, hash_bytes
from trtcache.errors import (
    AmbiguousKeyError,
    CorruptBlobError,
    FormatVersionError,
    ReadOnlyError,
    UnknownKeyError,
)
from trtcache.store.compression import CompressionError
from trtcache.store.contract import Entry, Miss
from trtcache.store.disk import DiskStore
from trtcache.store.format import FORMAT, PRELUDE_BYTES
from trtcache.store.reader import ArtifactFile, EntryStat
from trtcache.store.single_flight import BuildProcess

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENTS: dict[str, bytes | bytearray | memoryview | Path] = {"artifact": b"engine " * 300, "map": b"{}"}


def hit(store: DiskStore, key: CacheKey) -> Entry:
    """Return the entry, which must be there."""
    found = store.get(key)
    assert isinstance(found, Entry), found
    return found


def files_below(root: Path) -> dict[str, tuple[int, int]]:
    """Return every path below ``root`` with its size and time of modification."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in [root, *root.rglob("*")]}


def test_an_entry_comes_back(store: DiskStore, key: CacheKey) -> None:
    """What was put is got, by another store object too, and is not marked as built."""
    put = store.put(key, CONTENTS, kind="test", name="n", build_s=2.5, provenance={"host": "h"})
    assert (put.outcome, put.path) == ("built", store.path(key.digest))
    assert put.read("artifact") == CONTENTS["artifact"]
    entry = hit(DiskStore.open(store.root), key)
    assert (entry.outcome, entry.reason, entry.name, entry.build_s) == ("hit", None, "n", 2.5)
    assert entry.provenance == {"host": "h"}
    assert entry.members == ("artifact", "map")
    assert (entry.read(), entry.read("map")) == (CONTENTS["artifact"], b"{}")


def test_an_absent_entry_is_a_miss(store: DiskStore, key: CacheKey) -> None:
    """No file is the reason absent."""
    assert store.get(key) == Miss("absent")


def test_a_put_replaces_an_entry_and_leaves_what_was_read(store: DiskStore, key: CacheKey) -> None:
    """A second put is got from then on; entries that were got or put before keep their bytes."""
    first = store.put(key, {"artifact": os.urandom(2 << 20), "text": b"one " * 500}, kind="test")
    before = hit(store, key)
    old = bytes(before.read())
    store.put(key, {"artifact": b"new"}, kind="test")
    assert hit(store, key).read() == b"new"
    store.remove(key.digest)
    assert before.read() == old == first.read()
    assert first.read("text") == b"one " * 500


def test_damage_after_a_put_does_not_cost_what_was_built(store: DiskStore, key: CacheKey, tmp_path: Path) -> None:
    """Members built in memory stay right whatever becomes of the file; one built as a file is found to be damaged."""
    (tmp_path / "source").write_bytes(b"from a file")
    entry = store.put(key, {"artifact": b"in memory", "file": tmp_path / "source"}, kind="test")
    path = store.path(key.digest)
    raw = bytearray(path.read_bytes())
    raw[4096:] = bytes(len(raw) - 4096)
    path.write_bytes(raw)
    assert entry.read() == b"in memory"
    with pytest.raises(CorruptBlobError, match="member 'file' does not match"):
        entry.read("file")


def test_a_member_that_is_not_there_is_named(store: DiskStore, key: CacheKey) -> None:
    """The error for an unknown member lists the existing ones."""
    entry = store.put(key, CONTENTS, kind="test")
    for one in (entry, hit(store, key)):
        with pytest.raises(KeyError, match="no member 'engine'; it has artifact, map"):
            one.read("engine")
    assert len(entry.contents) == 2
    assert "map" in entry.contents


def test_a_member_is_written_whole_or_not_at_all(store: DiskStore, key: CacheKey, tmp_path: Path) -> None:
    """Writing a member to a file replaces it atomically and leaves no other file."""
    entry = store.put(key, CONTENTS, kind="test")
    target = tmp_path / "out" / "engine.plan"
    target.parent.mkdir()
    target.write_bytes(b"old")
    entry.write("artifact", target)
    assert target.read_bytes() == CONTENTS["artifact"]
    with pytest.raises(KeyError):
        entry.write("none", target)
    assert target.read_bytes() == CONTENTS["artifact"]
    assert [path.name for path in target.parent.iterdir()] == ["engine.plan"]


def test_a_hit_marks_the_file_as_used(store: DiskStore, key: CacheKey) -> None:
    """Use is the file's time of modification."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    os.utime(path, ns=(5, 5))
    hit(store, key)
    assert time.time_ns() - path.stat().st_mtime_ns < 60e9


def test_private_stores_map_large_members(store: DiskStore, key: CacheKey) -> None:
    """A store of mode 0700 on a local disk maps a large member; one that others can enter does not."""
    if not store.private:
        pytest.skip("the temporary directory is on a file system that is not known as local")
    store.put(key, {"artifact": os.urandom(2 << 20)}, kind="test")
    mapped = hit(store, key).read()
    store.root.chmod(0o755)
    shared = DiskStore.open(store.root)
    copied = hit(shared, key).read()
    assert isinstance(mapped, memoryview)
    assert isinstance(copied, memoryview)
    assert (type(mapped.obj).__name__, type(copied.obj).__name__) == ("mmap", "bytearray")
    assert mapped == copied
    assert not shared.private


def test_no_descriptor_stays_open(store: DiskStore, key: CacheKey) -> None:
    """Hits, misses and puts leave no file open once their entries are released."""
    store.put(key, CONTENTS, kind="test")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names alone are wanted
    for _ in range(10):
        hit(store, key)
        store.put(key, CONTENTS, kind="test")
        store.check(key.digest)
        store.get(CacheKey.of("test", {"n": 2}))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  # as above


def test_a_flip_of_every_byte_is_a_miss_that_is_quarantined_and_counted(
    store: DiskStore, key: CacheKey, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever byte of an entry changes, it is a miss, its file is moved away once, and the reason is counted."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    whole = path.read_bytes()
    caplog.set_level(logging.ERROR)
    reasons = []
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= 0xFF
        path.write_bytes(damaged)
        path.chmod(0o600)
        found = store.get(key)
        assert isinstance(found, Miss), f"byte {offset} was served"
        assert found.reason.startswith("corrupt:"), f"byte {offset}: {found.reason}"
        assert not path.exists()
        reasons.append(found.reason.removeprefix("corrupt:"))
    counted = [event.reason for event in store.events.read() if event.event == "quarantine"]
    assert counted == reasons
    assert set(reasons) == {"magic", "header", "size", "padding", "member"}
    quarantined = [name.name.split(".")[1] for name in (store.root / "quarantine").iterdir()]
    assert sorted(quarantined) == sorted(reasons)


def test_damage_is_warned_of_with_its_reason(store: DiskStore, key: CacheKey, caplog: pytest.LogCaptureFixture) -> None:
    """The warning has the damaged file and the reason."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    os.truncate(path, 100)
    assert store.get(key) == Miss("corrupt:size")
    assert f"{path}: damaged (size)" in caplog.text
    assert caplog.messages[-1].endswith("; it is a miss")  # a build may be forbidden
    assert store.get(key) == Miss("absent")


def test_a_sound_file_that_took_the_place_of_a_damaged_one_stays(store: DiskStore, key: CacheKey) -> None:
    """A reader that found damage does not move away what another process has put there since."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    error = CorruptBlobError(str(path), "member", "seen in an earlier file")
    store.quarantine_damage(key.digest, error.reason, path.stat().st_ino + 1)
    assert hit(store, key).read() == CONTENTS["artifact"]


def test_an_equal_digest_with_another_document_is_refused(store: DiskStore, key: CacheKey) -> None:
    """The whole key document is compared, not only its digest."""
    store.put(CacheKey(key.digest, CacheKey.of("test", {"n": 2}).document), CONTENTS, kind="test")
    with pytest.raises(CorruptBlobError, match="does not have this digest"):
        store.check(key.digest)
    assert store.get(key) == Miss("corrupt:key")


def test_a_sound_entry_of_another_document_is_refused_and_kept(store: DiskStore, key: CacheKey) -> None:
    """Equal digests of different documents are a collision, not corruption: nothing is quarantined."""
    other = CacheKey.of("test", {"n": 2})
    store.put(other, CONTENTS, kind="test")
    assert store.get(CacheKey(other.digest, key.document)) == Miss("collision")
    assert isinstance(store.get(other), Entry)
    assert list(store.events.read()) == []


def put_special(path: Path, kind: str) -> None:
    """Put something that is not a plain file of ours at ``path``."""
    path.unlink()
    if kind == "link":
        target = path.with_suffix(".elsewhere")
        target.write_bytes(b"canary")
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
        (path / "inside").write_bytes(b"x")
    elif kind == "hard link":
        target = path.with_suffix(".elsewhere")
        target.write_bytes(b"canary")
        path.hardlink_to(target)
    else:
        path.write_bytes(b"engine")
        path.chmod(0o666)


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo", "directory", "writable by others"])
def test_what_is_not_a_plain_file_of_ours_is_a_miss(store: DiskStore, key: CacheKey, kind: str) -> None:
    """A link, FIFO, directory or foreign file in an entry's place is moved away, and the entry can be put again."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    put_special(path, kind)
    assert store.get(key) == Miss("corrupt:file")
    store.put(key, CONTENTS, kind="test")
    assert hit(store, key).read() == CONTENTS["artifact"]
    if "link" in kind:
        assert path.with_suffix(".elsewhere").read_bytes() == b"canary"
    store.sweep(quarantine_s=-1)
    assert list((store.root / "quarantine").iterdir()) == []


def test_a_file_of_a_later_format_stays(store: DiskStore, key: CacheKey, caplog: pytest.LogCaptureFixture) -> None:
    """An entry that a later version wrote is a miss here, and is left for that version."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    raw = bytearray(path.read_bytes())
    raw[8:12] = (FORMAT + 1).to_bytes(4, "little")
    header_bytes = int.from_bytes(raw[12:16], "little")
    raw[32:64] = hash_bytes(bytes(raw[:32] + raw[PRELUDE_BYTES : PRELUDE_BYTES + header_bytes]))
    path.write_bytes(raw)
    assert store.get(key) == Miss("format")
    assert path.exists()
    assert "upgrade trtcache" in caplog.text
    with pytest.raises(FormatVersionError):
        store.header(key.digest)


def test_a_file_that_cannot_be_read_is_a_miss_and_stays(store: DiskStore, key: CacheKey) -> None:
    """Trouble of the system is not damage: a file in the place of a directory makes a miss and nothing is moved."""
    directory = store.path(key.digest).parent
    directory.parent.mkdir()
    directory.write_bytes(b"")
    assert store.get(key) == Miss("unreadable")
    assert directory.exists()
    assert list(store.scan()) == []


def test_a_failed_put_leaves_the_old_entry_and_nothing_else(store: DiskStore, key: CacheKey, tmp_path: Path) -> None:
    """A put that raises at any point leaves the old entry served and no temporary file."""
    store.put(key, {"artifact": b"old"}, kind="test")
    with pytest.raises(Exception, match="gone cannot be read"):
        store.put(key, {"artifact": os.urandom(3 << 20), "more": tmp_path / "gone"}, kind="test")
    assert hit(store, key).read() == b"old"
    assert [path.name for path in store.path(key.digest).parent.iterdir()] == [f"{key.digest}.trtc"]


def test_a_flush_that_failed_is_final(store: DiskStore, key: CacheKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed flush of the file nothing is flushed again or renamed: the kernel may have dropped its pages."""
    store.put(key, {"artifact": b"old"}, kind="test")
    calls: list[str] = []

    def fsync(fd: int) -> None:
        regular = Path(f"/proc/self/fd/{fd}").is_file()
        calls.append("file" if regular else "directory")
        if regular:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"):
        store.put(key, {"artifact": b"new"}, kind="test")
    assert calls[-1] == "file"
    assert calls.count("file") == 1
    assert hit(store, key).read() == b"old"


def test_an_error_at_the_close_of_what_was_read_costs_nothing(
    store: DiskStore, key: CacheKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may report an error on close that does not affect the verified bytes."""
    store.put(key, CONTENTS, kind="test")
    close = os.close

    def full(fd: int) -> None:
        entry = Path(f"/proc/self/fd/{fd}").readlink().suffix == ".trtc"
        close(fd)
        if entry:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "close", full)
    assert hit(store, key).read() == CONTENTS["artifact"]
    assert store.check(key.digest).key == key


def test_short_writes_are_continued(store: DiskStore, key: CacheKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes a hundred bytes a call gets the rest in the next."""
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, memoryview(data)[:100], offset))
    store.put(key, CONTENTS, kind="test")
    assert hit(store, key).read() == CONTENTS["artifact"]


def test_writes_that_lie_are_not_acknowledged(store: DiskStore, key: CacheKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is read back before it gets its name; a disk that loses a write makes no entry."""
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, bytes(len(data)), offset))
    with pytest.raises(CorruptBlobError):
        store.put(key, CONTENTS, kind="test")
    assert store.get(key) == Miss("absent")
    assert list(store.path(key.digest).parent.iterdir()) == []


def test_a_header_is_read_alone(store: DiskStore, key: CacheKey) -> None:
    """A header tells all about an entry, though a member is damaged; a full check finds the damage."""
    path = store.put(key, CONTENTS, kind="test", name="n").path
    assert path is not None
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    header = store.header(key.digest)
    assert (header.key, header.name, header.file_bytes) == (key, "n", path.stat().st_size)
    with pytest.raises(CorruptBlobError, match="member"):
        store.check(key.digest)
    assert path.exists()


def test_unknown_entries_are_named(store: DiskStore, key: CacheKey) -> None:
    """Header, check and stat raise for an unknown entry; removing it frees nothing."""
    calls: list[Callable[[str], Any]] = [store.header, store.check, store.stat, store.resolve]
    for call in calls:
        with pytest.raises(UnknownKeyError):
            call(key.digest)
    assert store.remove(key.digest) == 0
    store.quarantine(key.digest, "gone")
    assert list(store.events.read()) == []


def test_a_scan_lists_only_entries(store: DiskStore, key: CacheKey) -> None:
    """Temporary files, links and foreign names are not listed."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    (path.parent / ".tmp-1").write_bytes(b"")
    (path.parent / "notes.txt").write_bytes(b"")
    (path.parent / ("0" * 64 + ".trtc")).symlink_to(path)
    (store.root / "entries" / "README").write_bytes(b"")
    found = list(store.scan())
    assert found == [store.stat(key.digest)]
    assert found[0].file_bytes == path.stat().st_size
    assert store.remove(key.digest) == found[0].file_bytes
    assert list(store.scan()) == []


def test_ten_thousand_entries_are_scanned(store: DiskStore) -> None:
    """A scan finds every file, by listing directories only."""
    for number in range(256):
        (store.root / "entries" / f"{number:02x}").mkdir(parents=True)
    for number in range(10_000):
        store.path(hash_bytes(b"%d" % number).hex()).touch()
    assert sum(1 for _ in store.scan()) == 10_000


def test_prefixes_resolve(store: DiskStore) -> None:
    """A prefix of any length names the one entry that has it, with or without b3: and in capitals."""
    keys = [CacheKey.of("test", {"n": number}) for number in range(40)]
    for key in keys:
        store.put(key, {"artifact": b""}, kind="test")
    wanted = keys[0].digest
    for prefix in (wanted, wanted[:12], f"b3:{wanted[:12]}", wanted[:12].upper()):
        assert store.resolve(prefix) == wanted
    with pytest.raises(AmbiguousKeyError, match="entries have keys that start with"):
        store.resolve(next(digit for digit in "0123456789abcdef" if sum(k.digest[0] == digit for k in keys) > 1))
    for prefix in ("", "xyz", "../..", wanted + "0", "f" * 64):
        with pytest.raises(UnknownKeyError):
            store.resolve(prefix)


def test_pins_are_files(store: DiskStore, key: CacheKey) -> None:
    """Pinning is idempotent; a pin needs no index; foreign names are ignored."""
    assert store.pins() == frozenset()
    store.pin(key.digest)
    store.pin(key.digest)
    (store.root / "pins" / ".hidden").touch()
    assert DiskStore.open(store.root).pins() == {key.digest}
    store.unpin(key.digest)
    store.unpin(key.digest)
    assert store.pins() == frozenset()


def test_a_sweep_takes_what_writers_left_behind(store: DiskStore, key: CacheKey) -> None:
    """Temporary files older than an hour and old quarantined files go; young ones and entries stay."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    old, young, marker = path.parent / ".tmp-old", path.parent / ".tmp-young", store.root / ".tmp-marker"
    for temporary in (old, young, marker):
        temporary.write_bytes(b"12345")
    for temporary in (old, marker):
        os.utime(temporary, ns=(0, 0))
    assert store.sweep() == 10
    assert (old.exists(), young.exists(), marker.exists(), path.exists()) == (False, True, False, True)
    store.quarantine(key.digest, "Test: 1")
    assert [name.name.split(".")[1] for name in (store.root / "quarantine").iterdir()] == ["test--1"]
    assert store.sweep() == 0
    assert store.sweep(quarantine_s=-1, temporary_s=-1) > 5
    assert sum(1 for _ in store.root.rglob("*.test*")) == 0


def test_a_quarantined_entry_is_kept_for_a_week(store: DiskStore, key: CacheKey) -> None:
    """The week begins when it is moved, however long ago it was used."""
    path = store.put(key, CONTENTS, kind="test").path
    assert path is not None
    os.utime(path, ns=(0, 0))
    store.quarantine(key.digest, "test")
    assert store.sweep() == 0
    (quarantined,) = (store.root / "quarantine").iterdir()
    assert quarantined.stat().st_mtime_ns == 0  # it could be another name of a file outside of the store
    quarantined.rename(quarantined.with_suffix(f".{store.clock_ns() - 8 * 86400 * 10**9}"))
    assert store.sweep() > 0
    assert not list((store.root / "quarantine").iterdir())


def test_a_sweep_of_the_quarantine_leaves_the_files_of_running_builds(store: DiskStore, key: CacheKey) -> None:
    """As ``trtcache clean`` sweeps it; abandoned ones go after a week."""
    with store.flight(key.digest), store.notes.waiting(key.digest, BuildProcess.here()):
        store.sweep(quarantine_s=0.0)
        (found,) = store.notes.running_builds()
        assert (found.builder is not None, len(found.waiters)) == (True, 1)
    abandoned = store.root / "locks" / "waiting" / f"{key.digest}.0"
    abandoned.write_bytes(b"x")
    os.utime(abandoned, ns=(0, 0))
    store.sweep()
    assert not abandoned.exists()


def test_inode_numbers_fit_into_the_index(store: DiskStore, key: CacheKey) -> None:
    """SQLite has integers of 64 bits with a sign."""
    store.put(key, CONTENTS, kind="test")
    status = list(store.path(key.digest).stat())
    status[1] = (1 << 64) - 5
    assert EntryStat.of(key.digest, os.stat_result(status)).inode == (1 << 63) - 5


def test_a_built_entry_keeps_no_file_open_once_it_is_in_memory(store: DiskStore, key: CacheKey, tmp_path: Path) -> None:
    """Members that were built as files are read from the artifact first."""
    (tmp_path / "built").write_bytes(b"engine")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # names alone are wanted
    in_memory = store.put(key, CONTENTS, kind="test")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  # as above
    built = store.put(key, {"artifact": tmp_path / "built", "map": b"{}"}, kind="test")
    assert len(os.listdir("/proc/self/fd")) == before + 1  # noqa: PTH208  # as above
    assert (built.read(), in_memory.read()) == (b"engine", CONTENTS["artifact"])
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  # as above
    assert built.read() == b"engine"


@pytest.mark.parametrize("error", [MemoryError(), CompressionError("Allocation error : not enough memory")])
def test_a_put_without_memory_is_an_error_of_writing(
    store: DiskStore, key: CacheKey, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The cache then returns the build without having stored it."""

    def compressor(size_bytes: int) -> None:
        raise error

    monkeypatch.setattr("trtcache.store.writer.compressor", compressor)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        store.put(key, CONTENTS, kind="test")
    assert store.get(key) == Miss("absent")


def test_a_readonly_store_serves_hits_and_writes_nothing(store: DiskStore, key: CacheKey) -> None:
    """Opened read-only, a store serves hits, refuses every change, and not one time or file changes."""
    store.put(key, {"artifact": b"engine", "large": os.urandom(2 << 20)}, kind="test")
    damaged = CacheKey.of("test", {"n": 2})
    path = store.put(damaged, CONTENTS, kind="test").path
    assert path is not None
    os.truncate(path, 50)
    before = files_below(store.root)
    reading = DiskStore.open(store.root, readonly=True)
    assert hit(reading, key).read() == b"engine"
    assert reading.get(damaged) == Miss("corrupt:magic")
    reading.events.append("hit")
    for change in (reading.remove, reading.pin, reading.unpin):
        with pytest.raises(ReadOnlyError, match="is read-only"):
            change(key.digest)
    for call in (
        lambda: reading.put(key, CONTENTS, kind="test"),
        lambda: reading.quarantine(key.digest, "x"),
        reading.sweep,
    ):
        with pytest.raises(ReadOnlyError):
            call()
    assert files_below(store.root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_reads_a_store_of_root(key: CacheKey) -> None:
    """A store that is readable for others serves another user, who cannot change it and does not map its files."""
    shared = Path("/dev/shm") / f"trtcache-test-{os.getpid()}"  # noqa: S108  # others can enter it, unlike tmp_path
    try:
        store = DiskStore.open(shared)
        store.put(key, {"artifact": os.urandom(2 << 20)}, kind="test")
        for path in [shared, *shared.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        child = os.fork()
        if child == 0:
            os._exit(_read_as_nobody(shared, key))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        shutil.rmtree(shared)


def _read_as_nobody(root: Path, key: CacheKey) -> int:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    store = DiskStore.open(root)
    found = store.get(key)
    mapped = isinstance(found, Entry) and type(getattr(found.read(), "obj", None)).__name__ == "mmap"
    return 0 if isinstance(found, Entry) and not store.writable and not mapped and not store.private else 1


def test_a_hit_imports_no_database(store: DiskStore, key: CacheKey) -> None:
    """A process that only hits loads neither SQLAlchemy nor torch nor the command line's libraries."""
    store.put(key, CONTENTS, kind="test")
    code = (
        "import sys; before = set(sys.modules)\n"
        "from trtcache import CacheKey; from trtcache.store.disk import DiskStore\n"
        f"found = DiskStore.open({str(store.root)!r}).get(CacheKey.of('test', {{'n': 1}}))\n"
        "assert found.outcome == 'hit'\n"
        "names = ('sqlalchemy', 'sqlite3', 'alembic', 'torch', 'click', 'rich', 'filelock', 'ctypes')\n"
        "print([name for name in names if name in sys.modules and name not in before])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"[]\n"


def test_what_memory_does_not_hold_is_an_error_of_reading(store: DiskStore) -> None:
    """And so a miss that leaves the entry where it is: it may be sound, and fit into another process."""
    key = CacheKey.of("test", {"n": 1})
    store.put(key, {"a": b"engine"}, kind="test")
    file = ArtifactFile(store.path(key.digest))
    with pytest.raises(OSError, match="Cannot allocate memory"):
        file.read(replace(file.header.members[0], stored_bytes=1 << 50), mapped=False)


def test_a_quarantined_file_with_a_wrong_time_is_swept(tmp_path: Path) -> None:
    """A clean takes all; otherwise a time in the future, or before 2000, does not count."""
    store = DiskStore.open(tmp_path / "cache")
    (store.root / "quarantine").mkdir()
    future, past = f"a.member.{time.time_ns() + 20 * 365 * 86400 * 10**9}", "b.member.7"
    for name in (future, past):
        (store.root / "quarantine" / name).touch()
    store.sweep()
    assert {path.name for path in (store.root / "quarantine").iterdir()} == {future, past}
    later = DiskStore.open(tmp_path / "cache", clock_ns=lambda: time.time_ns() + 8 * 86400 * 10**9)
    later.sweep()
    assert list((store.root / "quarantine").iterdir()) == []
    (store.root / "quarantine" / future).touch()
    store.sweep(quarantine_s=0.0)
    assert list((store.root / "quarantine").iterdir()) == []
