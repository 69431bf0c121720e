"""What may not be wrong with a store after a kill, a power cut or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.scenarios import TRUST, content_of, fetch, key_of
from trtcache.store.catalog import load_records
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore
from trtcache.store.record import INDEX_NAME, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.scenarios import Scenario


def problems(root: Path, scenario: Scenario, acknowledged: set[str], *, refused: bool) -> list[str]:
    """Return what is wrong with the store that a child left; ``refused`` says that it met errors and was not killed.

    After an error the index may be made anew instead of migrated; a kill is no reason for that.
    """
    store = DiskStore.open(root, trust=TRUST)
    found = [*_entries(store, scenario, acknowledged), *_pins(store, scenario, acknowledged)]
    listed, there = {record.digest for record in load_records(store)}, {stored.digest for stored in store.scan()}
    load_records(store)  # a commit that failed half-way is rolled back by the first listing, its rows go with this one
    rows = read_rows(store.index_root / INDEX_NAME)
    if not there == listed == set(rows or {}):
        found.append(f"{len(there)} entries, {len(listed)} listed, {len(rows or {})} in the index")
    if scenario.newer and not refused and list((root / "quarantine").glob(f"{INDEX_NAME}*")):
        found.append("the index was not migrated, and was set aside")
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
    wanted = {key_of(scenario.pin).digest} if scenario.pin and not scenario.may_unpin else set()
    if "pin" in acknowledged:
        wanted.add(key_of("one").digest)
    if "unpinned" in acknowledged and store.pins():
        return ["a pin came back"]
    return [] if wanted <= store.pins() else ["a pin is lost"]
