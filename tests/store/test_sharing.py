"""A store of a group, used by two real users with any umask; and what is refused."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

import pytest

from tests.store.users import ALICE, BOB, GROUP, OUTSIDER, as_user, needs_root, public_directory
from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.signing_keys import Trust
from trtcache.digests import CacheKey
from trtcache.errors import NotAStoreError, SettingsError, UnsafeStoreError
from trtcache.store.catalog import counters, load_records
from trtcache.store.disk import DiskStore
from trtcache.store.root import MARKER, check_links, group_id, share
from trtcache_cli.verify import check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.store.contract import Entry

KEY = CacheKey.of("test", {"n": 1})


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory for all users."""
    with public_directory() as made:
        yield made


def built(root: Path, number: int) -> Entry:
    """Get or build an entry, trusting all members."""
    cache = Cache(config=Config(root, trust=Trust(required=False)))
    return cache.get_or_build({"n": number}, lambda: b"engine %d" % number * 999, kind="test")


@pytest.fixture
def imported(tmp_path: Path) -> None:
    """Import what children will need: as other users they may not be able to read this Python."""
    store = DiskStore.open(tmp_path / "warm")
    built(store.root, 1)
    load_records(store)
    counters(store)
    store.sweep()
    Config.from_environ({})


@needs_root
@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize(("first", "second"), [(0o077, 0o000), (0o022, 0o077), (0o000, 0o027)])
def test_members_share_whatever_their_umask(public: Path, first: int, second: int) -> None:
    """Two users take each other's entries, replace, pin, prune and list them; every mode is 2770 or 0660."""
    root = public / "store"

    def make() -> None:
        share(root, GROUP)
        assert built(root, 1).outcome == "built"

    def use() -> None:
        store = DiskStore.open(root)
        assert (store.shared, store.writable, store.private) == (True, True, False)
        assert built(root, 1).outcome == "hit"
        assert built(root, 2).outcome == "built"
        store.pin(KEY.digest)
        store.quarantine(KEY.digest, "tried")
        assert built(root, 1).outcome == "built"
        assert {record.pinned for record in load_records(store)} == {False, True}
        assert sum(tally.count for (_, event, _, _), tally in counters(store).items() if event == "put") == 3

    def tend() -> None:
        store = DiskStore.open(root)
        store.unpin(KEY.digest)
        assert built(root, 2).outcome == "hit"
        assert store.remove(KEY.digest) > 0
        assert store.sweep(temporary_s=-1, quarantine_s=-1) > 0

    as_user(ALICE, make, umask=first)
    as_user(BOB, use, umask=second)
    as_user(ALICE, tend, umask=first)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [root, *root.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o2770}
    assert {mode for path, mode in modes.items() if path.is_file() and path.name != MARKER} == {0o660}
    assert modes[root / MARKER] == 0o644
    assert {path.lstat().st_gid for path in modes} == {GROUP}


@needs_root
def test_a_user_outside_the_group_has_no_access(public: Path) -> None:
    """Another user cannot even read a shared store; the message has the reason."""
    as_user(ALICE, lambda: share(public / "store", GROUP))

    def look() -> None:
        with pytest.raises(NotAStoreError, match="Permission denied"):
            DiskStore.open(public / "store")

    as_user(OUTSIDER, look, group=0)


@needs_root
def test_only_its_owner_declares_a_store_shared(public: Path) -> None:
    """A directory of another user is refused, and so is one that a member declared shared in its owner's place."""
    root = public / "store"

    def prepare() -> None:
        root.mkdir()
        os.chown(root, -1, GROUP)
        root.chmod(0o2770)

    def declare() -> None:
        with pytest.raises(UnsafeStoreError, match=f"belongs to user {ALICE}; use a directory of your own, or let"):
            DiskStore.open(root)
        (root / MARKER).write_text('{"format": 1, "shared": true}')
        with pytest.raises(UnsafeStoreError, match="a user other than its owner could have"):
            DiskStore.open(root)
        with pytest.raises(UnsafeStoreError, match=f"belongs to user {ALICE}, who is the only one who can share it"):
            share(root, GROUP)

    def refuse() -> None:
        with pytest.raises(UnsafeStoreError, match="a user other than its owner could have"):
            DiskStore.open(root)

    as_user(ALICE, prepare)
    as_user(BOB, declare)
    as_user(ALICE, refuse)


@needs_root
@pytest.mark.usefixtures("imported")
def test_a_store_that_another_user_planted_runs_nothing(public: Path) -> None:
    """Declared shared for a group that both are in, it is a store; but its entries are ignored by default."""
    root = public / "store"

    def plant() -> None:
        share(root, GROUP)
        Cache(config=Config(root, trust=Trust(required=False))).get_or_build({"n": 1}, lambda: b"evil", kind="test")

    def ask() -> None:
        before = {path: path.lstat().st_mtime_ns for path in root.rglob("*.trtc")}
        entry = Cache(config=Config(root)).get_or_build({"n": 1}, lambda: b"own", kind="test")
        assert (entry.outcome, entry.reason, entry.read()) == ("built", "untrusted:unsigned", b"own")
        assert {path: path.lstat().st_mtime_ns for path in root.rglob("*.trtc")} == before

    as_user(ALICE, plant)
    as_user(BOB, ask)


@needs_root
@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("group", [0, GROUP], ids=["his own", "a shared one"])
def test_settings_that_a_users_own_group_may_write_count(public: Path, group: int) -> None:
    """With umask 002, settings writable by the user's private group are read; those of another group are rejected."""

    def ask() -> None:
        file = public / "own.toml"
        file.write_text("readonly = true")
        file.chmod(0o664)
        os.chown(file, -1, group or ALICE)
        if group:
            with pytest.raises(SettingsError, match="other users can write to it"):
                Config.from_environ({"TRTCACHE_CONFIG": str(file)})
        else:
            assert Config.from_environ({"TRTCACHE_CONFIG": str(file)}).readonly

    as_user(ALICE, ask)


@needs_root
@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("place", ["sticky", "open", "above", "missing", "ours in an open one"])
def test_links_of_other_users_are_refused(public: Path, place: str) -> None:
    """A link that another user owns or can replace is rejected; it could lead to a directory with hostile content."""
    theirs, link = public / place, public / place / "cache"

    def own() -> None:
        theirs.mkdir()
        theirs.chmod(0o1777 if place == "sticky" else 0o777)
        built(public / "own" / "store", 1)
        if place == "ours in an open one":
            link.symlink_to(public / "own" / "store")

    def lead() -> None:
        (public / "stepping").symlink_to(public / "own")
        if place != "ours in an open one":
            link.symlink_to(public / "stepping" if place in ("above", "missing") else public / "own" / "store")

    def follow() -> None:
        way = {"above": link / "store", "missing": link / "new" / "store"}.get(place, link)
        why = "could replace it" if place == "ours in an open one" else f"is a link owned by user {BOB}"
        for use in (DiskStore.open, lambda root: share(root, GROUP)):
            with pytest.raises(UnsafeStoreError, match=why):
                use(way)
        assert not (public / "own" / "new").exists()

    as_user(ALICE, own)
    as_user(BOB, lead)
    as_user(ALICE, follow)


@needs_root
@pytest.mark.usefixtures("imported")
def test_what_a_member_cannot_read_costs_no_other_entry(public: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a file nor a folder that others closed ends listing, counting, verifying or pruning."""
    root = public / "store"

    def make() -> None:
        share(root, GROUP)
        for number in range(1, 4):
            built(root, number)

    def close() -> None:
        path = DiskStore.open(root).path(CacheKey.of("test", {"n": 2}).digest)
        path.chmod(0)
        names = (root / "entries" / f"{number:02x}" for number in range(256))
        next(path for path in names if not path.exists()).mkdir(mode=0o700)

    def use() -> None:
        cache = Cache(config=Config(root, trust=Trust(required=False), max_entries=2))
        assert len(load_records(DiskStore.open(root))) == 2
        assert sum("ermission denied" in text for text in caplog.messages) == 2
        assert [one.reason for one in check(cache.store, list(cache.store.scan()), lambda _: None)] == ["unreadable"]
        cache.get_or_build({"n": 9}, lambda: b"engine", kind="test")
        assert len(load_records(DiskStore.open(root))) == 1
        assert built(root, 2).reason == "unreadable"
        assert built(root, 2).outcome == "hit"

    as_user(ALICE, make)
    as_user(ALICE, close)
    as_user(BOB, use)


def test_ones_own_links_lead_to_a_store(tmp_path: Path) -> None:
    """Relative or not, to a directory above the store or to it, also out of a folder of links."""
    built(tmp_path / "disk" / "store", 1)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "disk").symlink_to("../disk")
    (tmp_path / "links" / "store").symlink_to(tmp_path / "links" / "disk" / "store")
    for way in ("links/store", "links/disk/store", "links/disk/../disk/./store", "links/../links/store"):
        assert built(tmp_path / way, 1).outcome == "hit"


def test_link_loops_are_not_a_store(tmp_path: Path) -> None:
    """Link loops are rejected like a directory that cannot be read."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for readonly in (False, True):
        with pytest.raises(NotAStoreError):
            DiskStore.open(tmp_path / "a", readonly=readonly)
    with pytest.raises(OSError, match="Too many levels"):
        check_links(tmp_path / "a" / "store")


@needs_root
def test_a_group_that_one_is_not_in_is_named(public: Path) -> None:
    """Only members can give a directory to a group."""

    def make() -> None:
        with pytest.raises(NotAStoreError, match="you are not in group 49999"):
            share(public / "store", 49999)

    as_user(ALICE, make)


@pytest.mark.parametrize(("bits", "why"), [(0o2772, "chmod o-w"), (0o0770, "chmod g\\+s")])
def test_a_shared_root_whose_mode_was_changed_is_refused(tmp_path: Path, bits: int, why: str) -> None:
    """Open to all, or no longer setgid: the message has the command that helps."""
    share(tmp_path / "store", os.getgid())
    (tmp_path / "store").chmod(bits)
    with pytest.raises(UnsafeStoreError, match=why):
        DiskStore.open(tmp_path / "store")


def test_sharing_twice_changes_nothing_and_a_private_store_is_not_shared(tmp_path: Path) -> None:
    """A shared store is shared already; what is private, or holds anything else, is refused with what to do."""
    share(tmp_path / "store", os.getgid())
    built(tmp_path / "store", 1)
    share(tmp_path / "store", os.getgid())
    assert built(tmp_path / "store", 1).outcome == "hit"
    DiskStore.open(tmp_path / "own")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    for name, why in (("own", "already a private store; use a new directory"), ("full", "contains 'thesis.tex'")):
        with pytest.raises(NotAStoreError, match=why):
            share(tmp_path / name, os.getgid())
    assert built(tmp_path / "own", 1).outcome == "built"


def test_a_group_is_a_name_or_a_number() -> None:
    """An unknown one is reported."""
    assert group_id("0") == group_id("root") == 0
    with pytest.raises(SettingsError, match="no group 'rooot'"):
        group_id("rooot")


@pytest.mark.parametrize("bits", [0o777, 0o772])
def test_a_directory_above_that_others_can_write_is_refused(tmp_path: Path, bits: int) -> None:
    """They could put another directory in the store's place; a sticky one, as /tmp is, lets them not."""
    DiskStore.open(tmp_path / "above" / "store")
    (tmp_path / "above").chmod(bits)
    with pytest.raises(UnsafeStoreError, match=r"parent .*above and could.*chmod \+t"):
        DiskStore.open(tmp_path / "above" / "store")
    (tmp_path / "above").chmod(bits | stat.S_ISVTX)
    DiskStore.open(tmp_path / "above" / "store")


@needs_root
def test_a_directory_above_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its owner can replace everything below it."""
    DiskStore.open(tmp_path / "above" / "store")
    os.chown(tmp_path / "above", ALICE, -1)
    with pytest.raises(UnsafeStoreError, match=f"belongs to user {ALICE}"):
        DiskStore.open(tmp_path / "above" / "store")


@pytest.mark.parametrize("name", ["quarantine", "events", "locks", "pins", "entries"])
def test_a_link_in_the_place_of_a_directory_leads_nowhere(tmp_path: Path, name: str) -> None:
    """In a shared store nothing is written, swept or deleted through a link that a member put there."""
    store_root, outside = tmp_path / "store", tmp_path / "outside"
    share(store_root, os.getgid())
    entry = built(store_root, 1)
    outside.mkdir()
    (outside / "canary").write_text("alive")
    (outside / "canary").chmod(0o600)
    os.utime(outside / "canary", (1, 1))
    before = {path: path.stat().st_mtime_ns for path in [outside, *outside.iterdir()]}
    (store_root / name).rename(tmp_path / "aside")
    (store_root / name).symlink_to(outside)
    store = DiskStore.open(store_root)
    for number in (1, 2):
        assert built(store_root, number).read() == b"engine %d" % number * 999
    for work in (lambda: store.pin(entry.key.digest), lambda: store.quarantine(entry.key.digest, "x")):
        with contextlib.suppress(OSError):
            work()
    store.sweep(temporary_s=-1, quarantine_s=-1)
    assert {path: path.stat().st_mtime_ns for path in [outside, *outside.iterdir()]} == before
