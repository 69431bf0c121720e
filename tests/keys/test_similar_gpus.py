"""An entry for another GPU of the same capability: taken only where it is allowed, and never without a word."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.comparing import difference
from tests.models import Affine
from trtcache.digests import CacheKey
from trtcache.errors import IncompatibleEngineError, SettingsError
from trtcache.keys.explain import find_similar_gpu
from trtcache.store.disk import DiskStore
from trtcache.target import Gpu, Target
from trtcache.testing.interpreter import Interpretation, Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ADA = Gpu("RTX 4090", "8.9", 128, 24)
L4 = Gpu("L4", "8.9", 58, 24)
L40 = Gpu("L40", "8.9", 142, 48)
HOPPER = Gpu("H200", "9.0", 132, 140)
X = torch.randn(3, 4)
ALLOWED = {"tensorrt": {"compatible": "capability"}}


def key_for(gpu: Gpu | None, **parts: Any) -> CacheKey:
    """Return the key of a build for a GPU."""
    target = Target("linux-x86_64", "cuda", "plan", (), gpu.capability if gpu else "8.9", gpu)
    return CacheKey.of("tensorrt", {"target": target.document(), "graph": "g", **parts})


def put(store: DiskStore, key: CacheKey) -> None:
    """Store something under a key."""
    store.put(key, {"engine": b"plan"}, kind=key.kind)


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    """An empty store."""
    return DiskStore.open(tmp_path / "cache")


def test_only_the_product_may_differ(store: DiskStore) -> None:
    """Another capability, another graph, another kind and no product at all are no match."""
    for other in (key_for(HOPPER), key_for(L4, graph="h"), key_for(None), key_for(L4, more=1)):
        put(store, other)
    put(store, CacheKey.of("other", key_for(L4).document["parts"]))  # type: ignore[arg-type]  # a table
    assert find_similar_gpu(store, key_for(ADA)) is None
    put(store, key_for(ADA))
    assert find_similar_gpu(store, key_for(ADA)) is None
    assert find_similar_gpu(store, key_for(None)) is None


def test_the_best_suited_is_taken(store: DiskStore) -> None:
    """One that fits into this GPU's memory comes before a nearer one for more."""
    put(store, key_for(L40))
    found = find_similar_gpu(store, key_for(ADA))
    assert found is not None
    assert str(found) == "built for another GPU of the same compute capability: L40, and this is RTX 4090"
    put(store, key_for(L4))
    found = find_similar_gpu(store, key_for(ADA))
    assert found is not None
    assert (found.key, found.product) == (key_for(L4), "L4")


def test_damaged_entries_are_passed_over(store: DiskStore) -> None:
    """They are no reason to fail."""
    put(store, key_for(L4))
    store.path(key_for(L4).digest).write_bytes(b"junk")
    assert find_similar_gpu(store, key_for(ADA)) is None


def test_the_setting_is_no_part_of_the_key() -> None:
    """It says which entries are taken, and a backend without products refuses it."""
    settings = trtcache.Settings.of(ALLOWED)
    assert settings.document() == trtcache.Settings().document()
    with pytest.raises(SettingsError, match="'nearby' is not one of exact, capability"):
        trtcache.Settings.of({"tensorrt": {"compatible": "nearby"}})
    with pytest.raises(SettingsError, match="no such settings"):
        trtcache.key(Affine(), (X,), backend="aot_inductor", settings=ALLOWED)
    with pytest.raises(SettingsError, match="every GPU of a compute capability"):
        trtcache.key(Affine(), (X,), backend="tensorrt_rtx", target="sm_89", settings=ALLOWED)


@pytest.fixture
def on(interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., trtcache.CompiledModule]:
    """Compile on a machine with this GPU, as far as the backend can tell."""

    def compiled(gpu: Gpu, value: float = 1.0, *, allowed: bool = False) -> trtcache.CompiledModule:
        target = Target("linux-x86_64", "cuda", "plan", (), gpu.capability, gpu)
        monkeypatch.setattr(Interpreter, "target", lambda *_: target)
        monkeypatch.setattr(Interpreter, "takes_similar", lambda *_: allowed)
        return trtcache.compile(Affine(value), (X,), backend=interpreter, cache=tmp_path / "cache")

    return compiled


def test_another_products_engine_is_taken_where_that_is_allowed(
    on: Callable[..., trtcache.CompiledModule], caplog: pytest.LogCaptureFixture
) -> None:
    """The report and a warning name both products; weights are those of the model at hand, and nothing is built."""
    built = on(L4).report.partitions[0]
    module = on(ADA, 2.0, allowed=True)
    (partition,) = module.report.partitions
    assert (partition.outcome, partition.key) == ("hit", built.key)
    assert partition.reason == "built for another GPU of the same compute capability: L4, and this is RTX 4090"
    assert partition.reason in caplog.text
    assert partition.reason in str(module.report)
    assert difference(Affine(2.0)(X), module(X)) is None


def test_without_leave_it_is_built(on: Callable[..., trtcache.CompiledModule]) -> None:
    """By default, and for another capability; then the exact one is taken, leave or not."""
    on(L4)
    assert on(ADA).report.partitions[0].outcome == "built"
    assert on(HOPPER, allowed=True).report.partitions[0].outcome == "built"
    assert on(L40).report.partitions[0].outcome == "built"
    (partition,) = on(ADA, allowed=True).report.partitions
    assert (partition.outcome, partition.reason) == ("hit", "")


def test_one_that_does_not_load_is_left_where_it_is(
    on: Callable[..., trtcache.CompiledModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact one is built, and the other stays for the machines that it is for."""
    other = on(L4).report.partitions[0]
    load, refused = Interpreter.load, []

    def once(self: Interpreter, *args: Any, **options: Any) -> Interpretation:
        if not refused:
            refused.append(args)
            raise IncompatibleEngineError("plan", "built for another GPU")
        return load(self, *args, **options)

    monkeypatch.setattr(Interpreter, "load", once)
    (partition,) = on(ADA, allowed=True).report.partitions
    assert (partition.outcome, partition.reason) == ("built", "absent")
    monkeypatch.setattr(Interpreter, "load", load)
    assert on(L4).report.partitions[0].outcome == "hit"
    assert other.key != partition.key


def test_products_of_one_name_are_told_apart(store: DiskStore) -> None:
    """The same product with other memory is another GPU."""
    put(store, key_for(replace(ADA, memory_gib=48)))
    found = find_similar_gpu(store, key_for(ADA))
    assert found is not None
    assert found.product == found.requested == "RTX 4090"
