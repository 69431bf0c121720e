"""A writable store over read-only ones: hits from below, in place or as copies, and nothing below ever changes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.store.mounts import mounted, read_only
from tests.store.users import ALICE, as_user, needs_root, public_directory
from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.signing_keys import SecretKey, Trust
from trtcache.digests import CacheKey
from trtcache.errors import AmbiguousKeyError, BuildForbiddenError, NotAStoreError, SettingsError, UnknownKeyError
from trtcache.store.catalog import load_records
from trtcache.store.contract import Miss
from trtcache.store.disk import DiskStore
from trtcache.store.layers import Layers
from trtcache.store.record import INDEX_NAME, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.store.contract import Entry

KEY = CacheKey.of("test", {"n": 1})


def never() -> bytes:
    """Fail: a hit was expected."""
    raise AssertionError("it was built")


def fetched(cache: Cache, number: int = 1, build: Callable[[], bytes] = never) -> Entry:
    """Return an entry by number."""
    return cache.get_or_build({"n": number}, build, kind="test", name=f"model {number}")


def everything(root: Path) -> dict[str, tuple[int, ...]]:
    """Return the files below a directory with their metadata, without reading them."""
    found = {".": root.stat(), **{str(path.relative_to(root)): path.lstat() for path in root.rglob("*")}}
    return {name: (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in found.items()}


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    """A store with entries 1 and 2, and without an index."""
    cache = Cache(tmp_path / "lower")
    for number in (1, 2):
        fetched(cache, number, lambda: b"from below" * 1000)
    for name in ("index.sqlite", "index.sqlite-journal"):
        (tmp_path / "lower" / name).unlink(missing_ok=True)
    return tmp_path / "lower"


def test_a_hit_from_below_is_used_in_place(tmp_path: Path, lower: Path) -> None:
    """The entry's path is in the lower store, nothing is copied, and nothing there changes, not even a time."""
    before = everything(lower)
    cache = Cache(tmp_path / "upper", lower=[lower])
    entry = fetched(cache)
    assert (entry.outcome, entry.path) == ("hit", DiskStore.open(lower, readonly=True).path(KEY.digest))
    assert cache.get(KEY) is not None
    assert cache.store is not None
    assert list(cache.store.scan()) == []
    assert [event.reason for event in cache.store.events.read()] == ["below", "below"]
    assert everything(lower) == before


def test_what_is_missing_everywhere_is_built_above(tmp_path: Path, lower: Path) -> None:
    """A miss is built into the upper store, which serves it from then on."""
    before = everything(lower)
    cache = Cache(tmp_path / "upper", lower=[lower])
    built = fetched(cache, 3, lambda: b"new")
    assert (built.outcome, built.reason) == ("built", "absent")
    assert fetched(cache, 3).path == built.path
    assert everything(lower) == before


def test_a_copy_is_the_same_file(tmp_path: Path, lower: Path) -> None:
    """With ``copy_up``, a hit is copied to the upper store, byte for byte, and is served from there."""
    cache = Cache(tmp_path / "upper", lower=[lower], copy_up=True)
    entry = fetched(cache)
    assert cache.store is not None
    assert (entry.outcome, entry.path) == ("hit", cache.store.path(KEY.digest))
    assert entry.path is not None
    original = DiskStore.open(lower, readonly=True).path(KEY.digest)
    assert entry.path.read_bytes() == original.read_bytes()
    assert stat.S_IMODE(entry.path.stat().st_mode) == 0o600
    assert fetched(Cache(tmp_path / "upper")).read() == entry.read()
    inode = entry.path.stat().st_ino
    assert fetched(cache).path == entry.path
    assert entry.path.stat().st_ino == inode


def test_copies_count_for_the_limit(tmp_path: Path, lower: Path) -> None:
    """A copy has its row in the index at once, and makes room for itself as a put does."""
    cache = Cache(config=Config(tmp_path / "upper", lower=(lower,), copy_up=True, max_entries=1))
    for number in (1, 2):
        fetched(cache, number)
    assert cache.store is not None
    assert [one.digest for one in cache.store.scan()] == [CacheKey.of("test", {"n": 2}).digest]
    assert list(read_rows(cache.store.index_root / INDEX_NAME) or {}) == [CacheKey.of("test", {"n": 2}).digest]


def test_a_copy_keeps_its_signature_and_needs_it(tmp_path: Path) -> None:
    """A store that requires signatures accepts signed copies, whose signer is the builder."""
    pytest.importorskip("cryptography")
    secret = SecretKey.generate("ci")
    secret.write(tmp_path / "key")
    signing = Trust(True, (secret.public,), tmp_path / "key")
    below = Cache(config=Config(tmp_path / "lower", trust=signing))
    fetched(below, 1, lambda: b"signed")
    asking = Trust(True, (secret.public,))
    cache = Cache(config=Config(tmp_path / "upper", trust=asking, lower=(tmp_path / "lower",), copy_up=True))
    assert fetched(cache).read() == b"signed"
    assert cache.store is not None
    assert cache.store.verdict(KEY.digest).signer == "ci"
    fetched(Cache(tmp_path / "unsigned"), 2, lambda: b"unsigned")
    cache = Cache(config=Config(tmp_path / "upper", trust=asking, lower=(tmp_path / "unsigned",)))
    assert fetched(cache, 2, lambda: b"own").reason == "untrusted:unsigned"


def test_a_copy_takes_the_place_of_an_untrusted_file(tmp_path: Path) -> None:
    """The entry that is returned is the trusted one, and it is copied once."""
    pytest.importorskip("cryptography")
    secret = SecretKey.generate("ci")
    secret.write(tmp_path / "key")
    signing = Trust(True, (secret.public,), tmp_path / "key")
    fetched(Cache(config=Config(tmp_path / "lower", trust=signing)), 1, lambda: b"signed")
    fetched(Cache(tmp_path / "upper"), 1, lambda: b"unsigned")
    asking = Trust(True, (secret.public,))
    cache = Cache(config=Config(tmp_path / "upper", trust=asking, lower=(tmp_path / "lower",), copy_up=True))
    assert cache.store is not None
    for _ in range(2):
        entry = fetched(cache)
        assert (entry.read(), entry.path) == (b"signed", cache.store.path(KEY.digest))
    assert cache.store.verdict(KEY.digest).signer == "ci"
    assert [event.event for event in cache.store.events.read()].count("copy") == 1


@pytest.mark.parametrize("missed", ["format", "collision", "unreadable"])
def test_no_copy_takes_the_place_of_a_file_that_stays(tmp_path: Path, lower: Path, missed: str) -> None:
    """The hit from below is used in place, and no copy is counted."""
    below, upper = DiskStore.open(lower, readonly=True), DiskStore.open(tmp_path / "upper")
    entry = below.get(KEY)
    assert not isinstance(entry, Miss)
    assert Layers(upper, (below,), copies=True)._from_below(below, entry, missed) is entry
    assert (list(upper.scan()), list(upper.events.read())) == ([], [])


def test_unsigned_entries_of_a_group_are_not_copied_into_a_private_store(tmp_path: Path) -> None:
    """They are used because the user allowed it; a copy would still be trusted after the user revokes that."""
    root = tmp_path / "lower"
    fetched(Cache(root), 1, lambda: b"somebody's")
    (root / "trtcache-store.json").chmod(0o644)
    (root / "trtcache-store.json").write_text('{"format": 1, "shared": true}\n')
    root.chmod(0o2770)
    cache = Cache(config=Config(tmp_path / "upper", trust=Trust(False), lower=(root,), copy_up=True))
    assert fetched(cache).read() == b"somebody's"
    assert cache.store is not None
    assert list(cache.store.scan()) == []


@pytest.mark.parametrize("copies", [False, True])
def test_damage_below_is_a_miss_that_the_upper_store_fills(tmp_path: Path, lower: Path, copies: bool) -> None:
    """The reason is reported, nothing in the lower store is moved, and the next process has a hit."""
    path = DiskStore.open(lower, readonly=True).path(KEY.digest)
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    before = everything(lower)
    cache = Cache(tmp_path / "upper", lower=[lower], copy_up=copies)
    assert cache.peek(KEY) is None
    built = fetched(cache, 1, lambda: b"sound")
    assert (built.reason, built.read()) == ("corrupt:member", b"sound")
    assert fetched(Cache(tmp_path / "upper", lower=[lower], copy_up=copies)).read() == b"sound"
    assert everything(lower) == before


def test_damage_above_falls_through(tmp_path: Path, lower: Path) -> None:
    """A damaged entry of the upper store is quarantined, and the intact one below serves."""
    cache = Cache(tmp_path / "upper", lower=[lower], copy_up=True)
    path = fetched(cache).path
    assert path is not None
    os.truncate(path, 100)
    again = Cache(tmp_path / "upper", lower=[lower])
    assert fetched(again).path == DiskStore.open(lower, readonly=True).path(KEY.digest)
    assert not path.exists()


def test_the_first_layer_that_has_an_entry_serves_it(tmp_path: Path, lower: Path) -> None:
    """Layers are searched in order; one that is named twice, or is the upper one, is searched once."""
    fetched(Cache(tmp_path / "middle"), 1, lambda: b"from the middle")
    layers = [tmp_path / "middle", lower, lower, tmp_path / "upper"]
    cache = Cache(tmp_path / "upper", lower=layers)
    assert fetched(cache).read() == b"from the middle"
    assert fetched(cache, 2).read() == b"from below" * 1000
    assert [store.root.name for store in cache.layers.stores] == ["upper", "middle", "lower"]


def test_an_entry_that_its_loader_refused_is_built_above(tmp_path: Path, lower: Path) -> None:
    """A rejected entry of a lower store is left in place, and its replacement is found first."""
    before = everything(lower)
    cache = Cache(tmp_path / "upper", lower=[lower])
    cache.reject(fetched(cache), "load failed")
    assert fetched(cache, 1, lambda: b"loads").reason == "load failed"
    assert fetched(Cache(tmp_path / "upper", lower=[lower])).read() == b"loads"
    assert everything(lower) == before


def test_what_merges_takes_what_is_known_below(tmp_path: Path) -> None:
    """Nothing that a lower store has learned is lost when the upper one learns more."""
    Cache(tmp_path / "lower").merge("learned", {"n": 1}, lambda _: b"one")
    cache = Cache(tmp_path / "upper", lower=[tmp_path / "lower"])
    cache.merge("learned", {"n": 1}, lambda known: (known or b"") + b" and two")
    assert cache.recall("learned", {"n": 1}) == b"one and two"
    assert Cache(tmp_path / "lower").recall("learned", {"n": 1}) == b"one"


def test_hits_come_from_below_where_the_upper_store_is_unusable(
    tmp_path: Path, lower: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This is a warning, as without layers; with builds forbidden only hits are served."""
    (tmp_path / "upper").write_text("a file")
    cache = Cache(config=Config(tmp_path / "upper", lower=(lower,), forbid_build=True))
    assert cache.store is None
    assert "building without a cache" in caplog.text
    assert fetched(cache).outcome == "hit"
    with pytest.raises(BuildForbiddenError):
        fetched(cache, 3)


def test_a_missing_layer_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One named by the caller is an error; one from the environment a warning, as a volume may not be mounted yet."""
    with pytest.raises(NotAStoreError, match="the directory of this lower layer does not exist"):
        Cache(tmp_path / "upper", lower=[tmp_path / "gone"])
    assert Cache(config=Config(tmp_path / "upper", lower=(tmp_path / "gone",))).layers.lower == ()
    assert "continuing without this layer" in caplog.text
    for wrong in ("one", ["a", 1]):
        with pytest.raises(SettingsError, match="lower: expected"):
            Cache(tmp_path / "upper", lower=wrong)  # type: ignore[arg-type]


def test_keys_are_looked_up_in_all_layers(tmp_path: Path, lower: Path) -> None:
    """A beginning that two layers have of different keys is ambiguous."""
    layers = Cache(tmp_path / "upper", lower=[lower]).layers
    store, digest = layers.resolve(KEY.digest[:8])
    assert (store.root, digest) == (lower, KEY.digest)
    assert layers.holder(KEY.digest) is store
    with pytest.raises(UnknownKeyError):
        layers.resolve("0000")
    first = DiskStore.open(tmp_path / "other")
    near = CacheKey.of("test", {"n": next(n for n in range(9, 999) if _digit(n) == KEY.digest[0])})
    first.put(near, {"artifact": b""}, kind="test")
    only = DiskStore.open(tmp_path / "only")
    only.put(KEY, {"artifact": b""}, kind="test")
    with pytest.raises(AmbiguousKeyError):
        Layers(first, (only,)).resolve(KEY.digest[0])


def _digit(number: int) -> str:
    return CacheKey.of("test", {"n": number}).digest[0]


def test_a_read_only_file_system_serves(tmp_path: Path, lower: Path) -> None:
    """From a real read-only mount, as the only store, below another and by the variable, without any write attempt."""
    with read_only(lower, tmp_path / "volume") as volume:
        with pytest.raises(OSError, match="Read-only"):
            (volume / "try").touch()
        alone = Cache(volume)
        assert fetched(alone).read() == b"from below" * 1000
        assert fetched(alone, 3, lambda: b"new").path is None
        cache = Cache.from_environ({"TRTCACHE_PATH": f"{tmp_path / 'upper'}:{volume}", "TRTCACHE_COPY_UP": "1"})
        assert fetched(cache).path == tmp_path / "upper" / "entries" / KEY.digest[:2] / f"{KEY.digest}.trtc"
        assert fetched(cache, 3, lambda: b"new").path is not None


def test_a_squashfs_image_is_mapped(tmp_path: Path, lower: Path) -> None:
    """Such an image is read-only, so a large engine in it is mapped and not read, whatever the store's modes."""
    if shutil.which("mksquashfs") is None:
        pytest.skip("NOTHING WAS MOUNTED: there is no mksquashfs")
    engine = os.urandom(2 << 20)
    fetched(Cache(lower), 9, lambda: engine)
    lower.chmod(0o755)
    image = tmp_path / "image"
    subprocess.run(["mksquashfs", lower, image, "-quiet", "-no-progress"], check=True)
    with mounted(tmp_path / "volume", "-o", "loop,ro", image) as volume:
        cache = Cache(tmp_path / "upper", lower=[volume])
        below = cache.layers.lower[0]
        assert (below.private, below.index_root) == (True, volume)
        entry = fetched(cache, 9)
        assert entry.read() == engine
        assert entry.path is not None
        assert entry.path.is_relative_to(volume)
        mappings = Path("/proc/self/maps").read_text()
        assert str(entry.path) in mappings
        del entry


_LOADS = "import sys; from trtcache.cache import Cache; print(Cache(sys.argv[1]).get_or_build"


def test_nothing_is_tried_that_a_read_only_store_refuses(tmp_path: Path, lower: Path) -> None:
    """Of the calls that a hit makes, as the kernel sees them, none could change anything below."""
    code = f"{_LOADS}({{'n': 1}}, None, kind='test').outcome)"
    trace = tmp_path / "trace"
    calls = (
        "openat,open,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,utimensat,link,linkat,fchmod,chmod"
    )
    try:
        with read_only(lower, tmp_path / "volume") as volume:
            subprocess.run(
                ["strace", "-f", "-y", "-o", trace, "-e", f"trace={calls}", sys.executable, "-c", code, volume],
                check=True,
            )
    except FileNotFoundError:
        pytest.skip("NOTHING WAS TRACED: there is no strace")
    seen = [line for line in trace.read_text().splitlines() if str(tmp_path / "volume") in line]
    assert seen
    assert [line for line in seen if "O_RDONLY" not in line] == []


@needs_root
def test_another_user_reads_a_read_only_store() -> None:
    """Mode 0555 and 0444, as in an image's layer, served to a user who does not own it, with private copies."""
    with public_directory() as public:
        lower, upper = public / "lower", public / "upper"
        fetched(Cache(lower), 1, lambda: b"baked in")
        for path in (lower, *lower.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = everything(lower)

        def work() -> None:
            assert fetched(Cache(lower)).read() == b"baked in"
            path = fetched(Cache(upper, lower=[lower], copy_up=True)).path
            assert path is not None
            assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (ALICE, 0o600)

        as_user(ALICE, work)
        assert everything(lower) == before


def test_a_full_disk_costs_the_copy_alone(tmp_path: Path, lower: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The hit is served in place, with a warning, and nothing half is left above."""
    fetched(Cache(lower), 9, lambda: os.urandom(200_000))
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=100k,mode=700", "none") as small:
        cache = Cache(small, lower=[lower], copy_up=True)
        assert len(fetched(cache, 9).read()) == 200_000
        assert "is used in place and not copied" in caplog.text
        assert not list(small.rglob(".tmp-*"))
        assert cache.store is not None
        assert list(cache.store.scan()) == []


def test_a_copy_is_refused_if_it_is_not_the_entry_any_more(tmp_path: Path, lower: Path) -> None:
    """What was exchanged between the hit and the copy does not get above."""
    below, upper = DiskStore.open(lower, readonly=True), DiskStore.open(tmp_path / "upper")
    entry = below.get(KEY)
    assert not isinstance(entry, Miss)
    other = CacheKey.of("test", {"n": 2})
    below.path(KEY.digest).write_bytes(below.path(other.digest).read_bytes())
    assert Layers(upper, (below,), copies=True)._from_below(below, entry, "absent") is entry
    assert list(upper.scan()) == []


@needs_root
def test_a_folder_that_cannot_be_searched_has_no_entries() -> None:
    """Neither a listing nor a question fails for it."""
    with public_directory() as directory:

        def work() -> None:
            cache = Cache(directory / "cache")
            entry = cache.get_or_build({"n": 1}, lambda: b"built", kind="test")
            assert entry.path is not None
            for mode in (0o400, 0o000):
                entry.path.parent.chmod(mode)
                assert load_records(DiskStore.open(directory / "cache")) == []
                assert entry.key not in cache
                assert cache.layers.why_missed(entry.key.digest) == "absent"
            entry.path.parent.chmod(0o700)

        as_user(ALICE, work)
