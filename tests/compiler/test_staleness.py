"""Which entries an upgrade leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.compiler.build import Staleness
from trtcache.digests import CacheKey
from trtcache.store.catalog import load_records
from trtcache.store.disk import DiskStore
from trtcache_cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    """A store with entries of now, of another torch, for CUDA, without toolchain, of part of one, and key aliases."""
    made = DiskStore.open(tmp_path / "cache")
    document: dict[str, Any] = trtcache.key(Affine(), (torch.ones(2, 4),)).document
    parts, toolchain = document["parts"], document["parts"]["toolchain"]
    old = {**toolchain, "torch": "1.0"}
    alias_parts = {"backend": "aot_inductor", "target": parts["target"], "toolchain": toolchain}
    for name, kind, given in (
        ("now", "aot_inductor", parts),
        ("old", "aot_inductor", {**parts, "toolchain": old}),
        ("cuda", "aot_inductor", {**parts, "toolchain": old, "target": {**parts["target"], "device": "cuda"}}),
        ("other", "mine", {"n": 1}),
        ("old alias", "alias", {**alias_parts, "toolchain": old}),
        ("plan of an ONNX file", "aot_inductor", {**parts, "toolchain": dict([*toolchain.items()][:1])}),
        ("a caller's own", "mine", {"toolchain": "gcc 13", "target": "x86"}),
        ("alias of other code", "alias", {**alias_parts, "code": {"$digest": "b3:00", "$size": 1}}),
    ):
        key = CacheKey.of_document({**document, "kind": kind, "parts": given})
        made.put(key, {"artifact": name.encode()}, kind=kind, name=name)
    return made


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with a GPU judges entries for CUDA, too")
def test_entries_of_other_versions_are_stale(store: DiskStore) -> None:
    """Those of another torch or of other code of this package are; backends that cannot run here are not judged."""
    records = load_records(store)
    found = Staleness.of(store, records)
    names = {record.digest: record.name for record in records}
    assert sorted(str(names[digest]) for digest in found.stale) == ["alias of other code", "old", "old alias"]
    assert list(found.unchecked) == ["aot_inductor for cuda"]


def test_prune_evicts_stale_entries(store: DiskStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The command removes only those, with their reason, and lists what it did not judge."""
    with pytest.raises(SystemExit) as left:
        main(["prune", "--stale-toolchain", "-y", "--cache-dir", str(store.root)])
    said = capsys.readouterr()
    assert left.value.code in (0, None)
    assert said.out.count("stale-toolchain") == 3 + torch.cuda.is_available()
    assert ("entries of aot_inductor for cuda are kept" in said.err) is not torch.cuda.is_available()
    assert {record.name for record in load_records(store)} >= {"now", "other"}
