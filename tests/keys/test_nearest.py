"""The nearest entry: found in a bounded look, and never at the cost of a compile."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from trtcache.digests import CacheKey
from trtcache.keys import explain as module
from trtcache.keys.explain import nearest
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

X = torch.randn(3, 4)


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    """An empty store."""
    return DiskStore.open(tmp_path / "c")


def put(store: DiskStore, name: str | None = None, kind: str = "k", **parts: object) -> str:
    """Put an entry and return its digest."""
    key = CacheKey.of(kind, parts)
    store.put(key, {"artifact": b""}, kind=kind, name=name)
    return key.digest


def document(**parts: object) -> dict[str, object]:
    """Return the key document of these parts."""
    return CacheKey.of("k", parts).document  # type: ignore[return-value]


def test_the_entry_with_the_fewest_differences_is_nearest(store: DiskStore) -> None:
    """Of the same kind; what differs is told from the entry to what was asked for."""
    put(store, a=1, b=1, c=1)
    near = put(store, a=1, b=2, c=3)
    put(store, kind="other", a=1, b=2, c=4)
    found = nearest(store, document(a=1, b=2, c=4), name=None)  # type: ignore[arg-type]
    assert found is not None
    assert found.header.key.digest == near
    assert str(found) == f"nearest {near[:12]} differs in c: 3 -> 4"


def test_the_same_name_counts(store: DiskStore) -> None:
    """Two differences under the same name are nearer than one under another; ``same_name`` wants nothing else."""
    mine, other = put(store, "mine", a=1, b=1), put(store, "other", a=1, b=2)
    found = nearest(store, document(a=2, b=2), name="mine")  # type: ignore[arg-type]
    assert found is not None
    assert found.header.key.digest == mine
    alone = nearest(store, document(a=2, b=2), name="other", same_name=True)  # type: ignore[arg-type]
    assert alone is not None
    assert alone.header.key.digest == other
    assert nearest(store, document(a=2), name="third", same_name=True) is None  # type: ignore[arg-type]


def test_an_entry_is_not_its_own_nearest(store: DiskStore) -> None:
    """The entry that was asked about is left out, and an empty store has none."""
    assert nearest(store, document(a=1), name=None) is None  # type: ignore[arg-type]
    digest = put(store, a=1)
    assert nearest(store, document(a=1), name=None, without=digest) is None  # type: ignore[arg-type]


def test_only_so_many_headers_are_read(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the last use come first; a store of any size costs the same."""
    monkeypatch.setattr(module, "MOST_HEADERS", 2)
    for number in range(5):
        store.clock_ns = lambda number=number: number  # type: ignore[assignment,misc]
        put(store, n=number, same=number)
    found = nearest(store, document(n=0, same=1), name=None)  # type: ignore[arg-type]
    assert found is not None
    assert found.header.key.document["parts"]["n"] in {3, 4}  # type: ignore[index,call-overload]


def test_a_damaged_entry_is_passed_over(store: DiskStore) -> None:
    """Looking neither fails nor repairs."""
    sound, damaged = put(store, a=1), put(store, a=2)
    store.path(damaged).write_bytes(b"junk")
    found = nearest(store, document(a=3), name=None)  # type: ignore[arg-type]
    assert found is not None
    assert found.header.key.digest == sound
    assert store.path(damaged).exists()


def test_a_miss_is_logged_and_reported(interpreter: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line at INFO, the same as ``report.why``; a hit has none, and neither has a first build to compare with."""
    caplog.set_level(logging.INFO, "trtcache.compiler.entries")
    made = [
        trtcache.compile(nn.Linear(4, size), (X,), backend=interpreter, cache=tmp_path / "c").report.why
        for size in (4, 4, 5)
    ]
    assert made[:2] == ["no similar interpreter entry", ""]
    assert made[2].endswith("differs in graph: weight w0 shape[0]: 4 -> 5 (and 1 alike)")
    logged = [one.getMessage() for one in caplog.records if one.getMessage().startswith("miss: ")]
    assert logged == [f"miss: {made[0]}", f"miss: {made[2]}"]


def test_a_program_is_compared_with_similar_ones(interpreter: str, tmp_path: Path) -> None:
    """Of entries with other names one with half of the operators counts; of the same name any does."""
    deep = nn.Sequential(*(one for _ in range(3) for one in (nn.Linear(4, 4), nn.ReLU())))
    asked = [(deep[:2], "a"), (nn.Softmax(-1), "b"), (deep, "c"), (deep[:4], "d"), (nn.Softmax(0), "a")]
    made = [
        trtcache.compile(model, (X,), name=name, backend=interpreter, cache=tmp_path / "c").report.why
        for model, name in asked
    ]
    assert [one.startswith("nearest ") for one in made] == [False, False, False, True, True]


@pytest.mark.parametrize("graph", [b"junk", b"{}", b'{"nodes": [["a", [], null, [7]], ["output", [], []]]}'])
def test_an_odd_graph_in_the_store_costs_no_compile(interpreter: str, tmp_path: Path, graph: bytes) -> None:
    """Whatever another version or another program has put there, the build goes on."""
    store = DiskStore.open(tmp_path / "c")
    key = trtcache.key(nn.Linear(4, 5), (X,), backend=interpreter)
    store.put(key, {"engine": b"", "graph.json": graph}, kind=key.kind, name="Linear")
    report = trtcache.compile(nn.Linear(4, 4), (X,), backend=interpreter, cache=tmp_path / "c").report
    assert report.partitions[0].outcome == "built"
