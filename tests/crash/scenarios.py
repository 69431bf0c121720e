"""What is done to a store while it is killed, cut off from power, or refused its system calls."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.signing_keys import Trust
from trtcache.digests import CacheKey
from trtcache.store import catalog
from trtcache.store.disk import DiskStore
from trtcache.store.record import INDEX_NAME
from trtcache.store.root import share
from trtcache.store.sync import plan_sync

if TYPE_CHECKING:
    from pathlib import Path

Ack: TypeAlias = Callable[[str], None]


TRUST = Trust(required=False)
"""Of a shared store, too, what matters here is that nothing is lost or wrong."""


def key_of(name: str) -> CacheKey:
    """Return the key of the entry called ``name``; a version after a colon is not part of it."""
    return CacheKey.of("test", {"name": name.partition(":")[0]})


def content_of(name: str) -> bytes:
    """Return the bytes that the entry called ``name`` must have: 9 kB, half of it compressible."""
    return random.Random(name).randbytes(4500) + name.encode() * (4500 // len(name))


def fetch(root: Path, name: str, *, more: Mapping[str, bytes] | None = None, **config: object) -> bool:
    """Get or build one entry, with ``more`` members, through the whole door; return whether it is stored there."""
    base = replace(Config.from_environ({}), root=root, trust=TRUST, **config)  # type: ignore[arg-type]  # by name
    contents = {"artifact": content_of(name), **(more or {})}
    entry = Cache(config=base).get_or_build_key(key_of(name), lambda: contents, name=name)
    assert entry.read() == content_of(name)
    return entry.path is not None and root.resolve() in entry.path.parents


@dataclass(frozen=True)
class Scenario:
    """What is there before, what is done, and what may be missing after it.

    ``refuses`` says that it may end with an error of ours, as a command does and no build, and ``newer`` that the
    index is of a version before that of the code.
    """

    run: Callable[[Path, Ack], None]
    before: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    may_go: tuple[str, ...] = ()
    pin: str = ""
    damage: str = ""
    below: str = ""
    no_index: bool = False
    may_unpin: bool = False
    refuses: bool = False
    shared: bool = False
    newer: bool = False


def first_put(root: Path, ack: Ack) -> None:
    """Put into a directory that is not there: store, entry and index are made."""
    if fetch(root, "one"):
        ack("one")


def second_put(root: Path, ack: Ack) -> None:
    """Put a second entry."""
    if fetch(root, "two"):
        ack("two")


def put_alone(root: Path, ack: Ack) -> None:
    """Put an entry and no row of the index, whose flush would take the entry's name along to the disk."""
    DiskStore.open(root).put(key_of("two"), {"artifact": content_of("two")}, kind="test")
    ack("two")


def replace_entry(root: Path, ack: Ack) -> None:
    """Build an entry again and put it in place of the old one."""
    if fetch(root, "one:new", recache=True):
        ack("one:new")


def several_members(root: Path, ack: Ack) -> None:
    """Put an entry of six members."""
    if fetch(root, "many", more={f"member-{index}": os.urandom(5000) for index in range(5)}):
        ack("many")


def put_that_prunes(root: Path, ack: Ack) -> None:
    """Put an entry that makes the store too large, so that unpinned ones go."""
    if fetch(root, "two", max_size_bytes=30_000):
        ack("two")


def pin_entry(root: Path, ack: Ack) -> None:
    """Pin an entry."""
    DiskStore.open(root).pin(key_of("one").digest)
    ack("pin")


def damaged_entry(root: Path, ack: Ack) -> None:
    """Find an entry damaged, move it to quarantine and build it again."""
    if fetch(root, "one"):
        ack("one")


def hit(root: Path, ack: Ack) -> None:
    """Take an entry that is there."""
    assert fetch(root, "one", forbid_build=True)
    ack("one")


def copy_up(root: Path, ack: Ack) -> None:
    """Copy a hit from a store below into this one."""
    if fetch(root, "two", lower=(root.with_name("below"),), copy_up=True, forbid_build=True):
        ack("two")


def sync(root: Path, ack: Ack) -> None:
    """Copy what this store lacks from another one, and pin it."""
    plan = plan_sync([DiskStore.open(root.with_name("below"), readonly=True)], DiskStore.open(root), pins=True)
    if [record.digest for record in plan.execute().arrived] == [key_of("two").digest]:
        ack("two")


def prune(root: Path, ack: Ack) -> None:
    """Remove all entries but the pinned one."""
    store = DiskStore.open(root)
    catalog.plan_prune(catalog.load_records(store), now_ns=time.time_ns(), max_size_bytes=0).execute(store)
    ack("pruned")


def unpin_entry(root: Path, ack: Ack) -> None:
    """Unpin an entry."""
    DiskStore.open(root).unpin(key_of("one").digest)
    ack("unpinned")


def rebuild_index(root: Path, ack: Ack) -> None:
    """Make an index anew from the files, as after its loss or by ``trtcache verify --rebuild-index``."""
    catalog.rebuild(DiskStore.open(root))
    ack("rebuilt")


def migrate_index(root: Path, ack: Ack) -> None:
    """List the entries with code that has a later version of the index."""
    catalog.load_records(DiskStore.open(root))
    ack("migrated")


def count(root: Path, ack: Ack) -> None:
    """Fold what the event logs have into the index, as ``trtcache stats`` does."""
    catalog.counters(DiskStore.open(root))
    ack("counted")


def written_in_place(root: Path, ack: Ack) -> None:
    """Do what must not be done, to see that it is found: write the entry's file where it belongs, in two pieces."""
    store = DiskStore.open(root)
    store.put(key_of("one"), {"artifact": content_of("one")}, kind="test")
    path = store.path(key_of("one").digest)
    whole = path.read_bytes()
    path.unlink()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, whole[:5000])
    os.write(fd, whole[5000:])
    ack("one")


def renamed_unsynced(root: Path, ack: Ack) -> None:
    """Do what must not be done, to see that a power cut finds it: rename a file into place that was never synced."""
    elsewhere = DiskStore.open(root.with_name("elsewhere"))
    elsewhere.put(key_of("one"), {"artifact": content_of("one")}, kind="test")
    source, path = elsewhere.path(key_of("one").digest), DiskStore.open(root).path(key_of("one").digest)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(".tmp-beside")
    beside.write_bytes(source.read_bytes())
    beside.chmod(0o600)
    beside.rename(path)
    ack("one")


OLD = ("old-1", "old-2", "old-3")
SCENARIOS = {
    "first put": Scenario(first_put, wanted=("one",)),
    "second put": Scenario(second_put, before=("one",), wanted=("two",)),
    "put alone": Scenario(put_alone, before=("one",), wanted=("two",)),
    "replace": Scenario(replace_entry, before=("one",), wanted=("one:new",)),
    "several members": Scenario(several_members, before=("one",), wanted=("many",)),
    "put that prunes": Scenario(put_that_prunes, before=OLD, wanted=("two",), may_go=OLD[:2], pin=OLD[2]),
    "shared": Scenario(second_put, before=("one",), wanted=("two",), shared=True),
    "pin": Scenario(pin_entry, before=("one",), refuses=True),
    "damaged entry": Scenario(damaged_entry, before=("one",), wanted=("one",), may_go=("one",), damage="one"),
    "hit": Scenario(hit, before=("one",)),
    "copy up": Scenario(copy_up, before=("one",), wanted=("two",), below="two"),
    "sync": Scenario(sync, before=("one",), wanted=("two",), below="two", refuses=True),
    "prune": Scenario(prune, before=OLD, may_go=OLD[:2], pin=OLD[2], refuses=True),
    "unpin": Scenario(unpin_entry, before=("one",), pin="one", may_unpin=True, refuses=True),
    "rebuild index": Scenario(rebuild_index, before=OLD, no_index=True, refuses=True),
    "migrate index": Scenario(migrate_index, before=OLD, newer=True, refuses=True),
    "count": Scenario(count, before=("one",), refuses=True),
    "written in place": Scenario(written_in_place, wanted=("one",)),
    "renamed unsynced": Scenario(renamed_unsynced, wanted=("one",)),
}


def prepare(root: Path, scenario: Scenario) -> None:
    """Make the store that the scenario begins with."""
    if scenario.shared:
        share(root, os.getgid())
    for name in scenario.before:
        fetch(root, name)
    if scenario.below:
        fetch(root.with_name("below"), scenario.below)
    if scenario.pin:
        DiskStore.open(root).pin(key_of(scenario.pin).digest)
    if scenario.damage:
        path = DiskStore.open(root).path(key_of(scenario.damage).digest)
        with path.open("r+b") as file:
            file.seek(5000)
            file.write(b"damage")
    if scenario.no_index:
        (root / INDEX_NAME).unlink()
