"""Runtime caches in the store. TensorRT-RTX's own classes are stood in for: they need a GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.backends.tensorrt.fake_timing import GPU, NEWER, TENSORRT
from trtcache.backends.tensorrt.flavour import TENSORRT as TENSORRT_REAL
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.backends.tensorrt.tuning import RUNTIME_CACHE, RuntimeCache, tuning_key_parts
from trtcache.cache import Cache
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path


class FakeKernels:
    """``IRuntimeCache``: names of compiled kernels; loading others adds to them, or takes their place."""

    def __init__(self, *, adds: bool) -> None:
        self.adds = adds
        self.names: set[str] = set()

    def serialize(self) -> bytes:
        return json.dumps(sorted(self.names)).encode() if self.names else b""

    def deserialize(self, blob: bytes) -> bool:
        if not blob.startswith(b"["):
            return False
        self.names = {*json.loads(blob), *(self.names if self.adds else ())}
        return True


class FakeEngine:
    """``ICudaEngine`` and its ``IRuntimeConfig``."""

    def __init__(self, *, adds: bool = True, takes: bool = True) -> None:
        self.kernels = FakeKernels(adds=adds)
        self.takes = takes
        self.contexts: list[Any] = []

    def create_runtime_config(self) -> FakeEngine:
        return self

    def create_runtime_cache(self) -> FakeKernels:
        return self.kernels

    def set_runtime_cache(self, kernels: FakeKernels) -> bool:
        return self.takes and kernels is self.kernels

    def create_execution_context(self, runtime_config: Any = None) -> object:
        self.contexts.append(runtime_config)
        return object()


def kept(root: Path) -> set[str]:
    """Return the names that are in the store."""
    content = Cache(root).recall(RUNTIME_CACHE, tuning_key_parts(TENSORRT, GPU))
    return set(json.loads(content)) if content else set()


def test_kernels_are_compiled_once(tmp_path: Path) -> None:
    """The first call keeps what it compiled, and the next process begins with it; both use the cache's own context."""
    engine: Any = FakeEngine()
    cache = RuntimeCache(engine, TENSORRT, GPU, Cache(tmp_path))
    assert cache.context() is not None
    assert engine.contexts == [engine]
    engine.kernels.names.add("a")
    cache.has_run()
    assert kept(tmp_path) == {"a"}
    again: Any = FakeEngine()
    RuntimeCache(again, TENSORRT, GPU, Cache(tmp_path))
    assert again.kernels.names == {"a"}
    RuntimeCache(other := FakeEngine(), NEWER, GPU, Cache(tmp_path))
    assert other.kernels.names == set()


@pytest.mark.parametrize(
    ("adds", "expected"), [(True, {"mine", "theirs1", "theirs2"}), (False, {"theirs1", "theirs2"})]
)
def test_what_another_process_compiled_meanwhile_stays(tmp_path: Path, adds: bool, expected: set[str]) -> None:
    """Whichever way TensorRT-RTX loads a second cache, the store never has fewer kernels than before."""
    mine, theirs = FakeEngine(adds=adds), FakeEngine(adds=adds)
    ours, others = (RuntimeCache(one, TENSORRT, GPU, Cache(tmp_path)) for one in (mine, theirs))
    theirs.kernels.names |= {"theirs1", "theirs2"}
    others.keep()
    mine.kernels.names.add("mine")
    ours.keep()
    assert kept(tmp_path) == expected


@pytest.mark.parametrize("adds", [True, False])
def test_a_later_store_loses_nothing(tmp_path: Path, adds: bool) -> None:
    """A cache that is loaded may take the place of this process's: the next time the stored one is compared again."""
    mine, theirs = FakeEngine(adds=adds), FakeEngine(adds=adds)
    ours, others = (RuntimeCache(one, TENSORRT, GPU, Cache(tmp_path)) for one in (mine, theirs))
    theirs.kernels.names.add("theirs")
    others.keep()
    mine.kernels.names |= {"mine1", "mine2"}
    ours.keep()
    ours.keep()
    assert {"mine1", "mine2"} <= kept(tmp_path)


def test_what_tensorrt_refuses_is_compiled_anew(tmp_path: Path) -> None:
    """Kernels of another driver are as good as none, and an engine that takes no cache runs without."""
    Cache(tmp_path).merge(RUNTIME_CACHE, tuning_key_parts(TENSORRT, GPU), lambda _: b"of another driver")
    engine = FakeEngine()
    cache = RuntimeCache(engine, TENSORRT, GPU, Cache(tmp_path))
    engine.kernels.names.add("a")
    cache.has_run()
    assert kept(tmp_path) == {"a"}
    unwilling = FakeEngine(takes=False)
    cache = RuntimeCache(unwilling, TENSORRT, GPU, Cache(tmp_path))
    cache.has_run()
    assert cache.context() is not None
    assert unwilling.contexts == [None]


def test_trouble_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At exit the GPU may be gone; what was compiled is then lost, and nothing else."""
    engine = FakeEngine()
    cache = RuntimeCache(engine, TENSORRT, GPU, Cache(tmp_path))
    monkeypatch.setattr(engine.kernels, "serialize", lambda: 1 / 0)
    cache.keep()
    assert kept(tmp_path) == set()


def test_only_tensorrt_rtx_compiles_when_it_runs(tmp_path: Path) -> None:
    """TensorRT's plans have their kernels in them; without a store or a GPU nothing is attached."""
    assert (TENSORRT_RTX.compiles_at_run, TENSORRT_REAL.compiles_at_run) == (True, False)
    for store, gpu in ((None, GPU), (Cache(tmp_path), None)):
        engine = FakeEngine()
        cache = RuntimeCache(engine, TENSORRT_RTX, gpu, store)
        cache.context()
        cache.has_run()
        assert engine.contexts == [None]
    assert list(DiskStore.open(tmp_path).scan()) == []
