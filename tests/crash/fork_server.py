"""Kill a process before each of its mutating calls, or let them fail, and look at the store that it leaves.

Run under the shim: ``LD_PRELOAD=shim.so python fork_server.py SHIM DIRECTORY MODE SCENARIO...``. Everything is imported
once; each point is a forked child. A child tells an oracle pipe what the store has acknowledged. Prints one JSON
object: for each scenario the number of points and what was wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import logging
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from trtcache.cache import Cache
from trtcache.config import Config
from trtcache.store.catalog import load_records
from trtcache.store.disk import DiskStore
from trtcache.store.entry import Entry
from trtcache.store.rows import INDEX_NAME, read_rows
from trtcache.values import CacheKey

Ack: TypeAlias = Callable[[str], None]

Arm: TypeAlias = Callable[[int], None]

MAX_POINTS = 2000
REACHED, NOT_REACHED = 0, 3


def key_of(name: str) -> CacheKey:
    """Return the key of the entry called ``name``; a version after a colon is not part of it."""
    return CacheKey.of("test", {"name": name.partition(":")[0]})


def content_of(name: str) -> bytes:
    """Return the bytes that the entry called ``name`` must have: 9 kB, half of it compressible."""
    return random.Random(name).randbytes(4500) + name.encode() * (4500 // len(name))


def fetch(root: Path, name: str, *, more: Mapping[str, bytes] | None = None, **config: object) -> bool:
    """Get or build one entry, with ``more`` members, through the whole door; return whether it was stored."""
    base = replace(Config.from_environ({}), root=root, **config)  # type: ignore[arg-type]  # fields by name
    contents = {"artifact": content_of(name), **(more or {})}
    entry = Cache(config=base).fetch(key_of(name), lambda: contents, name=name)
    assert entry.read() == content_of(name)
    return entry.path is not None


@dataclass(frozen=True)
class Scenario:
    """What is there before, what is done, and what may be missing after it."""

    run: Callable[[Path, Ack], None]
    before: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    may_go: tuple[str, ...] = ()
    pin: str = ""
    damage: str = ""


def first_put(root: Path, ack: Ack) -> None:
    """Put into a directory that is not there: store, entry and index are made."""
    if fetch(root, "one"):
        ack("one")


def second_put(root: Path, ack: Ack) -> None:
    """Put a second entry."""
    if fetch(root, "two"):
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


OLD = ("old-1", "old-2", "old-3")
SCENARIOS = {
    "first put": Scenario(first_put, wanted=("one",)),
    "second put": Scenario(second_put, before=("one",), wanted=("two",)),
    "replace": Scenario(replace_entry, before=("one",), wanted=("one:new",)),
    "several members": Scenario(several_members, before=("one",), wanted=("many",)),
    "put that prunes": Scenario(put_that_prunes, before=OLD, wanted=("two",), may_go=OLD[:2], pin=OLD[2]),
    "pin": Scenario(pin_entry, before=("one",)),
    "damaged entry": Scenario(damaged_entry, before=("one",), wanted=("one",), may_go=("one",), damage="one"),
    "written in place": Scenario(written_in_place, wanted=("one",)),
}


def prepare(root: Path, scenario: Scenario) -> None:
    """Make the store that the scenario begins with."""
    for name in scenario.before:
        fetch(root, name)
    if scenario.pin:
        DiskStore.open(root).pin(key_of(scenario.pin).digest)
    if scenario.damage:
        path = DiskStore.open(root).path(key_of(scenario.damage).digest)
        with path.open("r+b") as file:
            file.seek(5000)
            file.write(b"damage")


def run_child(arm: Arm, calls: Callable[[], int], point: int, scenario: Scenario, root: Path) -> tuple[set[str], int]:
    """Run a scenario in a child that is armed for call ``point``; return what it acknowledged and how it ended."""
    oracle, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(oracle)
        arm(point)
        try:
            scenario.run(root, lambda name: _tell(told, name))
        except BaseException:  # noqa: BLE001  # the parent counts it
            traceback.print_exc()
            os._exit(1)
        os._exit(REACHED if calls() >= point else NOT_REACHED)
    os.close(told)
    with os.fdopen(oracle) as lines:
        acknowledged = set(lines.read().split("\n")) - {""}
    return acknowledged, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _tell(told: int, name: str) -> None:
    with contextlib.suppress(OSError):  # this write may be the one that fails
        os.write(told, name.encode() + b"\n")


def problems(root: Path, scenario: Scenario, acknowledged: set[str]) -> list[str]:
    """Return what is wrong with the store that a killed child left."""
    store = DiskStore.open(root)
    found = [*_entries(store, scenario, acknowledged), *_pins(store, scenario, acknowledged)]
    listed, there = {record.digest for record in load_records(store)}, {stored.digest for stored in store.scan()}
    load_records(store)  # a commit that failed half-way is rolled back by the first listing, its rows go with this one
    rows = read_rows(root / INDEX_NAME)
    if not there == listed == set(rows or {}):
        found.append(f"{len(there)} entries, {len(listed)} listed, {len(rows or {})} in the index")
    store.sweep(temporary_s=-1)
    found += [f"left behind: {path.name}" for path in root.rglob(".tmp-*")]
    fetch(root, "after")
    if not isinstance(store.get(key_of("after")), Entry):
        found.append("the next put is not found")
    return found


def _entries(store: DiskStore, scenario: Scenario, acknowledged: set[str]) -> list[str]:
    found = []
    for key_name in {name.partition(":")[0] for name in (*scenario.before, *scenario.wanted)}:
        versions = {name for name in (*scenario.before, *scenario.wanted) if name.partition(":")[0] == key_name}
        entry = store.get(key_of(key_name))
        must = (versions & acknowledged) or (set(scenario.before) & versions) - set(scenario.may_go)
        if isinstance(entry, Entry):
            allowed = (versions & acknowledged) or versions
            if entry.read() not in [content_of(name) for name in allowed]:
                found.append(f"{key_name}: wrong bytes served")
        elif must or (entry.reason != "absent" and not scenario.damage):
            found.append(f"{key_name}: {entry.reason}")
    return found


def _pins(store: DiskStore, scenario: Scenario, acknowledged: set[str]) -> list[str]:
    wanted = {key_of(scenario.pin).digest} if scenario.pin else set()
    if "pin" in acknowledged:
        wanted.add(key_of("one").digest)
    return [] if wanted <= store.pins() else ["a pin is lost"]


def explore(arm: Arm, calls: Callable[[], int], directory: Path, scenario: Scenario) -> tuple[int, list[str]]:
    """Run a scenario once for each call that it makes; return how many those are, and what was wrong."""
    template, root = directory / "template", directory / "root"
    prepare(template, scenario)
    wrong: list[str] = []
    for point in range(1, MAX_POINTS):
        shutil.rmtree(root, ignore_errors=True)
        if scenario.before:
            shutil.copytree(template, root)
            root.chmod(0o700)
        acknowledged, status = run_child(arm, calls, point, scenario, root)
        if status not in (REACHED, NOT_REACHED, -9):
            wrong.append(f"point {point}: the child ended with {status}")
        try:
            wrong += [f"point {point}: {problem}" for problem in problems(root, scenario, acknowledged)]
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            wrong.append(f"point {point}: {type(error).__name__}: {error}")
        if status == NOT_REACHED:
            return point - 1, wrong
    raise AssertionError(f"no end after {MAX_POINTS} points")


def main() -> None:
    """Explore the scenarios named on the command line."""
    logging.disable()
    shim = ctypes.CDLL(sys.argv[1])
    shim.crash_at.argtypes = [ctypes.c_long]
    shim.fail_at.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_int]
    shim.crash_calls.restype = ctypes.c_long
    modes: dict[str, Arm] = {
        "kill": shim.crash_at,
        "one fails": lambda point: shim.fail_at(point, point, errno.ENOSPC),
        "all fail": lambda point: shim.fail_at(point, 1 << 30, errno.EIO),
    }
    fetch(Path(sys.argv[2]) / "warm", "warm", max_size_bytes=1)  # imports all that is imported on the way
    results = {}
    for name in sys.argv[4:]:
        directory = Path(sys.argv[2]) / name.replace(" ", "-")
        directory.mkdir()
        results[name] = explore(modes[sys.argv[3]], shim.crash_calls, directory, SCENARIOS[name])
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
