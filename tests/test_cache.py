"""The torch-free door: built once, found again, and never in the way of a build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import trtcache
from trtcache import Cache, CacheKey, Entry
from trtcache.config.environment import Config
from trtcache.errors import (
    BuildError,
    BuildForbiddenError,
    CanonicalizationError,
    NotAStoreError,
    PinnedEntryError,
    SettingsError,
)
from trtcache.store.catalog import load_records
from trtcache.store.disk import DiskStore
from trtcache.store.record import IndexState, read_rows

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {"graph": "g", "level": 3}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that is not there yet."""
    return tmp_path / "cache"


@pytest.fixture
def config(root: Path) -> Config:
    """The configuration of an empty environment, with the root of this test."""
    return replace(Config.from_environ({}), root=root)


def fetch(cache: Cache, content: Any = b"engine", **more: Any) -> Entry:
    """Get or build the one entry of most tests."""
    return cache.get_or_build(PARTS, lambda: content, kind="test", **more)


def never() -> bytes:
    """Fail the test: a build that must not happen."""
    raise AssertionError("this was built")


def counts(cache: Cache) -> dict[tuple[str, str], int]:
    """Return how often each event with its reason is in the logs."""
    assert cache.store is not None
    return Counter((event.event, event.reason) for event in cache.store.events.read())


def entry_file(cache: Cache) -> Path:
    """Return the file of the one entry."""
    (path,) = cache.config.root.glob("entries/*/*.trtc")
    return path


def test_a_second_request_is_a_hit(config: Config) -> None:
    """The build is called once; another cache object finds the entry, and both are counted."""
    built = fetch(Cache(config=config), name="bert", provenance={"model": "b"})
    entry = Cache(config=config).get_or_build(PARTS, never, kind="test")
    assert (built.outcome, built.reason, built.read()) == ("built", "absent", b"engine")
    assert (entry.outcome, entry.reason, entry.read(), entry.name) == ("hit", None, b"engine", "bert")
    assert entry.path == built.path == entry_file(Cache(config=config))
    assert entry.provenance.keys() == {"host", "platform", "python", "trtcache", "model"}
    assert counts(Cache(config=config)) == {("miss", "absent"): 1, ("put", ""): 1, ("hit", ""): 1}


@pytest.mark.parametrize("form", ["bytes", "path", "mapping"])
def test_builders_return_bytes_a_path_or_members(config: Config, tmp_path: Path, form: str) -> None:
    """For every form of result, the entry has its bytes, also after the builder's file is deleted."""
    file = tmp_path / "engine.plan"
    file.write_bytes(os.urandom(2 << 20))
    content = file.read_bytes()
    built = {"bytes": content, "path": file, "mapping": {"artifact": file, "spec.json": b"{}"}}[form]
    first = fetch(Cache(config=config), built)
    file.unlink()
    second = fetch(Cache(config=config), never)
    assert first.read() == second.read() == content
    assert second.members == (("artifact", "spec.json") if form == "mapping" else ("artifact",))


def test_get_looks_and_never_builds(config: Config) -> None:
    """``get`` is a hit or None, and both are counted."""
    cache = Cache(config=config)
    key = cache.key(PARTS, kind="test")
    assert cache.get(key) is None
    fetch(cache)
    found = cache.get(key)
    assert found is not None
    assert found.outcome == "hit"
    assert counts(cache) == {("miss", "absent"): 2, ("put", ""): 1, ("hit", ""): 1}


def test_in_asks_every_layer_and_reads_nothing(config: Config, tmp_path: Path) -> None:
    """A key or a digest; anything else is in no cache."""
    cache = Cache(config=config)
    key = cache.key({"n": 1}, kind="test")
    assert key not in cache
    cache.get_or_build_key(key, lambda: b"one")
    above = Cache(tmp_path / "above", lower=[config.root])
    for one in (cache, above):
        assert key in one
        assert key.digest in one
        assert not any(other in one for other in (key.digest[:-1], "../" + key.digest, "x" * 5000, 3, None))


def test_a_hit_says_what_it_saved(config: Config) -> None:
    """The seconds of the build less those of the load are counted."""
    cache = Cache(config=config)
    assert cache.store is not None
    key = cache.key(PARTS, kind="test")
    cache.store.put(key, {"artifact": b"x"}, kind="test", build_s=40.0)
    fetch(cache, never)
    (event,) = cache.store.events.read()
    assert 0 < event.saved_s < 40


def test_a_failing_build_raises_and_frees_its_key(config: Config) -> None:
    """The builder's own exception comes through, nothing is stored, and the next call builds."""
    cache = Cache(config=config)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_build(PARTS, lambda: b"%d" % (1 // 0), kind="test")
    assert fetch(cache).outcome == "built"


def test_a_build_without_its_file_raises(config: Config, tmp_path: Path) -> None:
    """A builder that returns the path of a missing file gets an error."""
    with pytest.raises(BuildError, match="building test failed: member 'artifact' is the path"):
        fetch(Cache(config=config), tmp_path / "gone")


def test_a_part_without_a_value_raises(config: Config) -> None:
    """A part that cannot be hashed is named before anything is built."""
    with pytest.raises(CanonicalizationError, match=r"parts\['model'\]"):
        Cache(config=config).get_or_build({"model": object()}, never, kind="test")


@pytest.mark.parametrize(
    ("offset", "reason"),
    [(0, "magic"), (24, "size"), (40, "header"), (70, "header"), (4000, "padding"), (4096, "member"), (-1, "member")],
)
def test_damage_is_built_again_with_its_reason(config: Config, offset: int, reason: str) -> None:
    """A damaged entry is rebuilt, the reason is reported and counted, and the new entry is correct."""
    cache = Cache(config=config)
    content = b"engine " * 100
    fetch(cache, content)
    path = entry_file(cache)
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 0x40
    path.write_bytes(raw)
    again = fetch(cache, content)
    assert (again.outcome, again.reason, again.read()) == ("built", f"corrupt:{reason}", content)
    assert fetch(cache, never).read() == content
    assert counts(cache)["miss", f"corrupt:{reason}"] == 1
    assert len(list((config.root / "quarantine").iterdir())) == 1


def test_a_collision_is_counted_and_the_entry_that_is_there_stays(config: Config) -> None:
    """Two documents of one digest: the second is built each time, and the first keeps its place."""
    cache = Cache(config=config)
    fetch(cache)
    mine = cache.key(PARTS, kind="test")
    other = CacheKey(mine.digest, cache.key({"graph": "h"}, kind="test").document)
    for content in (b"one", b"two"):
        entry = cache.get_or_build_key(other, lambda content=content: content)
        assert (entry.outcome, entry.reason, entry.read()) == ("built", "collision", content)
    assert counts(cache)["miss", "collision"] == 2
    assert fetch(cache, never).read() == b"engine"


def test_a_rejected_entry_is_built_again(config: Config) -> None:
    """An entry that failed to load is quarantined, counted, and rebuilt with that reason."""
    cache = Cache(config=config)
    fetch(cache)
    cache.reject(fetch(cache), "load")
    again = fetch(cache, b"better")
    assert (again.outcome, again.reason) == ("built", "load")
    assert fetch(cache, never).read() == b"better"
    assert counts(cache)["reject", "load"] == 1
    assert counts(cache)["miss", "load"] == 1


def test_a_rejected_entry_of_a_readonly_store_is_not_returned_again(config: Config) -> None:
    """A bad entry that cannot be moved is skipped, so that callers do not loop."""
    fetch(Cache(config=config))
    reading = Cache(config=replace(config, readonly=True))
    reading.reject(fetch(reading, never), "load")
    assert fetch(reading, b"own").read() == b"own"
    assert fetch(Cache(config=config), never).read() == b"engine"


def test_disabled_is_building_and_nothing_else(config: Config) -> None:
    """TRTCACHE_DISABLE=1 neither reads nor makes the directory."""
    cache = Cache(config=replace(config, disable=True))
    entry = fetch(cache)
    assert (entry.outcome, entry.reason, entry.path, entry.read()) == ("built", "disabled", None, b"engine")
    assert cache.store is None
    assert cache.get(entry.key) is None
    cache.reject(entry, "load")
    assert not config.root.exists()


def test_an_entry_that_cannot_be_moved_away_is_passed_over(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    """Where quarantine fails, a rejected entry is still not returned again, and its successor takes its place."""
    cache = Cache(config=config)
    entry = fetch(cache)
    (config.root / "quarantine").write_bytes(b"")
    cache.reject(entry, "load")
    assert "cannot be moved to quarantine" in caplog.text
    assert fetch(cache, b"better").reason == "load"
    assert fetch(cache, never).read() == b"better"


def test_a_key_too_large_to_store_costs_the_entry_alone(config: Config) -> None:
    """A key document beyond the format's bound is built and returned, and the failure is counted by its name."""
    cache = Cache(config=config)
    entry = cache.get_or_build({"text": "x" * (17 << 20)}, lambda: b"engine", kind="test")
    assert (entry.read(), entry.path) == (b"engine", None)
    assert counts(cache)["put_failed", "HeaderSizeError"] == 1


def test_recache_builds_and_replaces(config: Config) -> None:
    """TRTCACHE_RECACHE=1 builds although there is an entry; the new one is found from then on."""
    fetch(Cache(config=config), b"old")
    entry = fetch(Cache(config=replace(config, recache=True)), b"new")
    assert (entry.outcome, entry.reason) == ("built", "recache")
    assert fetch(Cache(config=config), never).read() == b"new"


def test_forbidden_builds_are_errors(config: Config) -> None:
    """TRTCACHE_FORBID_BUILD=1 takes hits; a miss is an error that names kind, key and directory, and is counted."""
    forbidding = Cache(config=replace(config, forbid_build=True))
    with pytest.raises(BuildForbiddenError) as caught:
        fetch(forbidding, never)
    assert (caught.value.kind, caught.value.root) == ("test", str(config.root))
    assert counts(forbidding) == {("miss", "absent"): 1}
    fetch(Cache(config=config))
    assert fetch(forbidding, never).outcome == "hit"


@pytest.mark.parametrize(("field", "variable"), [("recache", "TRTCACHE_RECACHE"), ("disable", "TRTCACHE_DISABLE")])
def test_forbidding_comes_before_what_asks_for_builds(config: Config, field: str, variable: str) -> None:
    """Nothing is built, and the message names the variable that wanted it instead of an entry that is there."""
    fetch(Cache(config=config))
    wanted: dict[str, Any] = {field: True}
    both = Cache(config=replace(config, forbid_build=True, **wanted))
    with pytest.raises(
        BuildForbiddenError, match=f"TRTCACHE_FORBID_BUILD=1 and {variable}=1 requires a build of test key"
    ):
        fetch(both, never)


@pytest.mark.parametrize(
    ("where", "described"),
    [
        ("kind", {"kind": 3}),
        ("kind", {"kind": ""}),
        ("kind", {"kind": "Engine\n"}),
        ("kind", {"kind": "k" * 65}),
        ("parts", {"parts": [("n", 1)]}),
        ("name", {"name": 3}),
        ("name", {"name": "\ud800"}),
        ("provenance", {"provenance": ["host"]}),
        ("provenance", {"provenance": {"host": 3}}),
        ("provenance", {"provenance": {3: "host"}}),
        ("provenance", {"provenance": {"host": "\udfff"}}),
    ],
)
def test_a_wrong_description_is_an_error_before_the_build(
    config: Config, where: str, described: dict[str, Any]
) -> None:
    """What a header could not hold is refused while nothing is lost, and the message names it."""
    arguments: dict[str, Any] = {"parts": PARTS, "kind": "test", **described}
    with pytest.raises(CanonicalizationError) as caught:
        Cache(config=config).get_or_build(arguments.pop("parts"), never, **arguments)
    assert where in caught.value.where


def test_a_build_that_requests_its_own_entry_is_an_error(config: Config) -> None:
    """It would wait for itself for ever, through another cache object too; the key is free after that."""
    with pytest.raises(BuildError, match="requested its own entry"):
        Cache(config=config).get_or_build(PARTS, lambda: fetch(Cache(config=config)).read(), kind="test")
    assert fetch(Cache(config=config)).outcome == "built"


def test_a_build_may_ask_for_another(config: Config) -> None:
    """Builds nest as long as their keys differ."""
    cache = Cache(config=config)
    outer = cache.get_or_build({"outer": 1}, lambda: fetch(cache).read(), kind="test")
    assert outer.read() == b"engine"


def test_readonly_serves_hits_and_keeps_builds_in_memory(config: Config) -> None:
    """TRTCACHE_READONLY=1 hits, builds missing entries in memory, and does not modify the directory."""
    fetch(Cache(config=config))
    reading = Cache(config=replace(config, readonly=True))
    before = sorted(config.root.rglob("*"))
    assert fetch(reading, never).outcome == "hit"
    entry = reading.get_or_build({"other": 1}, lambda: bytearray(b"built"), kind="test")
    assert (entry.outcome, entry.reason, entry.path, entry.read()) == ("built", "readonly", None, b"built")
    assert sorted(config.root.rglob("*")) == before


@pytest.mark.parametrize("change", ["disable", "readonly", "stored"])
def test_an_entry_has_the_files_of_its_own_build(config: Config, tmp_path: Path, change: str) -> None:
    """A later build writes to the same file, whether the first one could be stored or not."""
    output = tmp_path / "output"

    def build(content: bytes) -> Path:
        output.write_bytes(content)
        return output

    Cache(config=config)
    cache = Cache(config=config if change == "stored" else replace(config, **{change: True}))
    first = cache.get_or_build({"n": 1}, lambda: build(b"first"), kind="test")
    second = cache.get_or_build({"n": 2}, lambda: build(b"second"), kind="test")
    output.unlink()
    assert (first.read(), second.read()) == (b"first", b"second")
    first.write("artifact", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"first"
    assert not first.unstored or change == "readonly"


def test_an_unusable_default_root_is_a_warning(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A cache that the environment names and that cannot be used is warned of once, and everything is built."""
    root.mkdir()
    (root / "thesis.tex").touch()
    cache = Cache.from_environ({"TRTCACHE_DIR": str(root)})
    entry = fetch(cache)
    assert (entry.outcome, entry.reason, entry.read()) == ("built", "unusable", b"engine")
    assert "is not a trtcache store" in caplog.text
    assert [path.name for path in root.iterdir()] == ["thesis.tex"]
    forbidding = Cache.from_environ({"TRTCACHE_DIR": str(root), "TRTCACHE_FORBID_BUILD": "1"})
    with pytest.raises(BuildForbiddenError):
        fetch(forbidding, never)


def test_an_unusable_root_that_is_named_is_an_error(root: Path) -> None:
    """A directory passed by the caller must be usable."""
    root.mkdir()
    (root / "thesis.tex").touch()
    with pytest.raises(NotAStoreError, match="it has no trtcache-store"):
        Cache(root)


def test_the_constructor_reads_the_environment(monkeypatch: pytest.MonkeyPatch, root: Path, tmp_path: Path) -> None:
    """Arguments come before variables; a limit may be text, and 0 is none."""
    monkeypatch.setenv("TRTCACHE_DIR", str(root))
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", "5MB")
    assert Cache().config == replace(Config.from_environ(os.environ), root=root, max_size_bytes=5_000_000)
    assert Cache(tmp_path / "other", max_size="2GiB").config.max_size_bytes == 2 << 30
    assert Cache(max_size=0).config.max_size_bytes is None
    with pytest.raises(SettingsError, match="max_size: 'large' is not a size"):
        Cache(max_size="large")


def test_a_put_gives_an_index_row_and_no_more_than_the_limit(config: Config) -> None:
    """After a put the store is under its limit; what was just put stays, however large."""
    cache = Cache(config=replace(config, max_size_bytes=30_000))
    for number in range(6):
        cache.get_or_build({"n": number}, lambda: os.urandom(6_000), kind="test")
    assert cache.store is not None
    records = load_records(cache.store)
    assert sum(record.file_bytes for record in records) <= 30_000
    assert (config.root / "index.sqlite").exists()
    large = cache.get_or_build({"n": "large"}, lambda: os.urandom(60_000), kind="test")
    assert [record.digest for record in load_records(cache.store)] == [large.key.digest]
    assert counts(cache)["evict", "max-size"] == 6


def test_a_broken_index_costs_nothing(config: Config) -> None:
    """With a directory in the index's place, entries are stored and found."""
    cache = Cache(config=config)
    (config.root / "index.sqlite" / "x").mkdir(parents=True)
    assert fetch(cache).path is not None
    assert fetch(cache, never).outcome == "hit"


def test_an_index_that_cannot_be_written_leaves_the_limit(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of entries is kept with the directory alone, whatever a migration raises."""
    cache = Cache(config=replace(config, max_entries=2))

    def fail(*_: object) -> None:
        raise RuntimeError("no such revision")

    monkeypatch.setattr("trtcache_migrations.upgrade", fail)
    monkeypatch.setattr("trtcache.store.index._state", lambda _: IndexState.OLDER)
    for number in range(4):
        assert cache.get_or_build({"n": number}, lambda: b"engine", kind="test").path is not None
    assert cache.store is not None
    assert len(list(cache.store.scan())) <= 2


def test_only_a_whole_digest_is_deleted_with_its_row(config: Config) -> None:
    """No text leads out of the directory."""
    cache = Cache(config=config)
    entry = fetch(cache)
    victim = config.root / "victim.trtc"
    victim.write_bytes(b"")
    for text in ("../../victim", entry.key.digest[:-1], entry.key.digest.upper(), ""):
        assert not cache.delete(text)
    assert (victim.exists(), fetch(cache, never).outcome) == (True, "hit")
    assert cache.delete(entry.key.digest)
    assert read_rows(config.root / "index.sqlite") == {}


def test_a_pinned_entry_is_deleted_by_force_only(config: Config) -> None:
    """As ``trtcache rm`` does it, and its pin goes with it."""
    cache = Cache(config=config)
    entry = fetch(cache)
    assert cache.store is not None
    cache.store.pin(entry.key.digest)
    with pytest.raises(PinnedEntryError, match="trtcache unpin"):
        cache.delete(entry.key)
    assert (fetch(cache, never).outcome, len(read_rows(config.root / "index.sqlite") or {})) == ("hit", 1)
    assert cache.delete(entry.key, force=True)
    assert (cache.store.pins(), list(cache.store.scan())) == (frozenset(), [])


@pytest.mark.parametrize(("build_s", "expected"), [(float("nan"), 0.0), (-1.0, 0.0), (1e300, 1e9), (2.0, 2.0)])
def test_any_build_time_of_a_by_product_is_stored(config: Config, build_s: float, expected: float) -> None:
    """It is for pruning, and limited to what the format takes."""
    cache = Cache(config=config)
    key = cache.key(PARTS, kind="test")
    cache.keep(key, b"alias", build_s=build_s)
    found = cache.get(key)
    assert found is not None
    assert found.build_s == expected


def test_a_by_product_that_is_not_stored_is_one_warning(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said of an index."""
    cache = Cache(config=config)
    (config.root / "entries").write_bytes(b"")
    cache.keep(cache.key(PARTS, kind="test"), b"alias", build_s=1.0)
    assert [record.message.partition(" was ")[2][:20] for record in caplog.records] == ["built but not stored"]


def test_an_entry_that_is_removed_at_once_is_no_warning(
    config: Config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may prune a new entry before it has its row in the index."""
    cache = Cache(config=config)
    assert cache.store is not None
    put = DiskStore.put

    def put_and_lose(store: DiskStore, *args: Any, **kwargs: Any) -> Any:
        entry = put(store, *args, **kwargs)
        store.remove(entry.key.digest)
        return entry

    monkeypatch.setattr(DiskStore, "put", put_and_lose)
    assert cache.get_or_build(PARTS, lambda: b"built", kind="test").read() == b"built"
    assert caplog.records == []


def test_a_lock_that_cannot_be_had_costs_nothing(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    """Without a lock the entry is built and stored all the same: two builds are slow, not wrong."""
    cache = Cache(config=config)
    (config.root / "locks").write_bytes(b"")
    assert fetch(cache).path is not None
    assert "without its lock" in caplog.text


def test_a_waiter_that_gives_up_builds(config: Config) -> None:
    """After its timeout a waiter builds too."""
    cache = Cache(config=config, busy_timeout_s=0.1)
    assert cache.store is not None
    with cache.store.flight(cache.key(PARTS, kind="test").digest):
        assert fetch(cache).outcome == "built"


def test_a_limit_on_file_size_costs_the_entry_alone(config: Config) -> None:
    """Where the system refuses to write, the build's result is returned, the failure counted, and no file is left."""
    cache = Cache(config=config)
    fetch(cache, b"small")
    code = textwrap.dedent(
        """
        import os, resource, signal, sys
        from trtcache import Cache
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        entry = Cache(sys.argv[1]).get_or_build({"large": 1}, lambda: os.urandom(3 << 20), kind="test")
        print(entry.outcome, entry.path, len(entry.read()))
        """
    )
    done = run(code, config.root)
    assert done == "built None 3145728\n"
    assert counts(cache)["put_failed", "File too large"] == 1
    assert not list(config.root.rglob(".tmp-*"))
    assert fetch(cache, never).read() == b"small"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
@pytest.mark.parametrize("options", ["size=256k", "nr_inodes=6,size=16m"])
def test_a_full_disk_costs_the_entry_alone(tmp_path: Path, options: str, caplog: pytest.LogCaptureFixture) -> None:
    """On a full disk, of bytes or of inodes, builds go on, old entries are served, and no temporary file is left.

    The warning names the file and what makes room.
    """
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", mount], check=False).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        cache = Cache(mount)
        outcomes = []
        for number in range(12):
            entry = cache.get_or_build({"n": number}, lambda: os.urandom(60_000), kind="test")
            assert len(entry.read()) == 60_000
            outcomes.append(entry.path is not None)
        kept = sum(outcomes)
        assert kept < 12
        assert "No space left on device; free space with 'trtcache prune'" in caplog.text
        assert f"not stored in {mount}: " in caplog.text
        assert not list(mount.rglob(".tmp-*"))
        assert cache.store is not None
        assert sum(1 for _ in cache.store.scan()) == kept
        for number, stored in enumerate(outcomes):
            found = cache.get(CacheKey.of("test", {"n": number}))
            assert (found is not None) == stored
    finally:
        subprocess.run(["umount", mount], check=True)


def run(code: str, *arguments: object, **environ: str) -> str:
    """Run Python code in a process of its own and return what it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environ, check=True, capture_output=True, text=True)
    return done.stdout


BUILDER = textwrap.dedent(
    """
    import os, pathlib, sys, threading, time
    import trtcache
    root, form, calls, threads = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4])
    cache = trtcache.Cache(root)
    CONTENT = b"engine " * 1000
    def build():
        fd = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, b"%d\\n" % os.getpid())
        os.close(fd)
        time.sleep(0.3)
        if form == "bytes":
            return CONTENT
        file = pathlib.Path(f"{calls}.{os.getpid()}")
        file.write_bytes(CONTENT)
        return file if form == "path" else {"artifact": file, "spec": b"{}"}
    outcomes = []
    def work():
        entry = cache.get_or_build({"n": 1}, build, kind="test")
        assert entry.read() == CONTENT
        outcomes.append(entry.outcome)
    sys.stdin.readline()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    print(" ".join(outcomes))
    """
)


def start(root: Path, form: str, calls: Path, threads: int = 1) -> subprocess.Popen[str]:
    """Start a process that waits for a line and then gets or builds the entry in some threads."""
    command = [sys.executable, "-c", BUILDER, str(root), form, str(calls), str(threads)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("form", ["bytes", "path", "mapping"])
def test_processes_and_threads_build_a_cold_key_once(root: Path, tmp_path: Path, form: str) -> None:
    """Three processes of four threads start together on a cold key: one build, eleven hits, the same bytes."""
    calls = tmp_path / "calls"
    processes = [start(root, form, calls, threads=4) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = " ".join(process.communicate(timeout=300)[0] for process in processes).split()
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(calls.read_text().split()) == 1
    assert Counter(outcomes) == {"built": 1, "hit": 11}


def test_a_waiter_succeeds_a_killed_leader(root: Path, tmp_path: Path) -> None:
    """A builder that is killed in its build is followed by exactly one of those that wait."""
    calls = tmp_path / "calls"
    leader = start(root, "bytes", calls)
    assert leader.stdin is not None
    leader.stdin.write("go\n")
    leader.stdin.flush()
    while not (calls.exists() and calls.read_text()):  # it is written after it is there
        assert leader.poll() is None
    leader.send_signal(signal.SIGSTOP)
    waiters = [start(root, "bytes", calls) for _ in range(2)]
    for waiter in waiters:
        assert waiter.stdin is not None
        waiter.stdin.write("go\n")
        waiter.stdin.flush()
    leader.kill()
    leader.communicate()
    outcomes = sorted(waiter.communicate(timeout=300)[0].strip() for waiter in waiters)
    assert outcomes == ["built", "hit"]
    assert len(calls.read_text().split()) == 2


def test_threads_with_different_keys_do_not_wait_for_each_other(config: Config) -> None:
    """Two keys build at the same time."""
    cache = Cache(config=config)
    both = threading.Barrier(2, timeout=60)

    def work(number: int) -> None:
        cache.get_or_build({"n": number}, lambda: b"%d" % both.wait(), kind="test")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not both.broken


def test_stale_temporary_files_go_with_the_next_put(config: Config) -> None:
    """What a killed writer left an hour ago is deleted after a put."""
    cache = Cache(config=config)
    fetch(cache)
    left = entry_file(cache).with_name(".tmp-left")
    left.write_bytes(b"x")
    os.utime(left, (0, 0))
    cache.get_or_build({"n": 2}, lambda: b"", kind="test")
    assert not left.exists()


def test_a_hit_of_the_cache_api_imports_no_database(config: Config) -> None:
    """A process that hits loads neither SQLAlchemy nor torch, and the build modules are not needed."""
    fetch(Cache(config=config))
    code = (
        "import sys; before = set(sys.modules); import trtcache\n"
        "entry = trtcache.Cache(sys.argv[1]).get_or_build({'graph': 'g', 'level': 3}, None, kind='test')\n"
        "names = ('sqlalchemy', 'sqlite3', 'alembic', 'torch', 'click', 'rich', 'filelock')\n"
        "print(entry.outcome, [name for name in names if name in sys.modules and name not in before])"
    )
    assert run(code, config.root, TRTCACHE_FORBID_BUILD="1") == "hit []\n"


def test_importing_the_package_is_next_to_nothing() -> None:
    """``import trtcache`` alone loads no module of it but itself."""
    code = "import sys, trtcache; print([name for name in sys.modules if name.startswith('trtcache.')])"
    assert run(code).strip() == "[]"


def test_the_package_exports_its_names() -> None:
    """Names are loaded when they are used; an unknown one is an AttributeError."""
    assert trtcache.Cache is Cache
    assert trtcache.Digest.of(b"") == trtcache.digest("/dev/null")
    assert trtcache.__version__.count(".") == 2
    assert {"Cache", "compile", "digest"} <= set(dir(trtcache))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        trtcache.nothing  # type: ignore[attr-defined]  # noqa: B018  # that it raises is the test


def test_a_hit_is_fast(config: Config) -> None:
    """A hit of 2 MB costs a few milliseconds, all of it verified."""
    cache = Cache(config=config)
    fetch(cache, os.urandom(2 << 20))
    assert min(fetch(cache, never).load_s for _ in range(5)) < 0.02  # 0.0006 s on an idle machine
