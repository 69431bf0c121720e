"""Timing caches in the store. TensorRT's own classes are stood in for; the store and its locks are the real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.backends.tensorrt.fake_timing import GPU, NEWER, TENSORRT, FakeConfig, built
from trtcache.backends.protocol import current_tuning_store, use_tuning_store
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.backends.tensorrt.tuning import TIMING_CACHE, TimingCache, tuning_key_parts
from trtcache.cache import Cache
from trtcache.store.catalog import counters
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartPython


def times(cache: Cache) -> dict[str, float]:
    """Return what is kept."""
    content = cache.recall(TIMING_CACHE, tuning_key_parts(TENSORRT, GPU))
    assert content is not None
    known: dict[str, float] = json.loads(content)[1]
    return known


def test_a_kernel_is_measured_once(tmp_path: Path) -> None:
    """A second build measures what the first did not, and a third one nothing; the store has one entry for all."""
    cache = Cache(tmp_path)
    assert built(cache, "a", "b") == ["a", "b"]
    assert built(cache, "b", "c") == ["c"]
    assert built(cache, "a", "c") == []
    assert set(times(cache)) == {"a", "b", "c"}
    store = DiskStore.open(tmp_path)
    (only,) = store.scan()
    assert (store.header(only.digest).kind, store.header(only.digest).name) == (TIMING_CACHE, "TensorRT 10.15.1.29")


def test_a_timing_cache_is_neither_hit_nor_miss(tmp_path: Path) -> None:
    """The counters of a store know engines only, and what is unchanged is not written again."""
    cache = Cache(tmp_path)
    for _ in range(2):
        built(cache, "a")
    (only,) = DiskStore.open(tmp_path).scan()
    built(cache, "a")
    assert next(iter(DiskStore.open(tmp_path).scan())).inode == only.inode
    assert not counters(DiskStore.open(tmp_path))


def test_processes_lose_nothing_of_each_other(tmp_path: Path, start_python: StartPython) -> None:
    """Two processes that keep what they measured at the same time leave all of it."""
    code = "import runpy, sys; sys.argv = ['x', {root!r}, {prefix!r}]; runpy.run_module({name!r}, run_name='__main__')"
    running = [
        start_python(code.format(root=str(tmp_path), prefix=prefix, name="tests.backends.tensorrt.fake_timing"))
        for prefix in "ab"
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert set(times(Cache(tmp_path))) == {f"{prefix}{number}" for prefix in "ab" for number in range(10)}


def test_what_another_measured_meanwhile_is_combined(tmp_path: Path) -> None:
    """A build that ends after another one keeps both."""
    cache, config = Cache(tmp_path), FakeConfig()
    timings = TimingCache(config, TENSORRT, GPU, cache)
    built(cache, "theirs")
    config.build("ours")
    timings.keep()
    assert set(times(cache)) == {"ours", "theirs"}


@pytest.mark.parametrize("content", [b"\xff damaged", b'["T4", {"old": 1.0}]'])
def test_a_cache_that_tensorrt_refuses_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    """Content of another device, or none at all, costs measurements and no build."""
    cache = Cache(tmp_path)
    cache.merge(TIMING_CACHE, tuning_key_parts(TENSORRT, GPU), lambda _: content)
    assert built(cache, "a") == ["a"]
    assert set(times(cache)) == {"a"}


def test_other_versions_and_gpus_have_caches_of_their_own() -> None:
    """Nothing that was measured elsewhere is taken for this machine's."""
    kinds = [GPU, replace(GPU, product="NVIDIA RTX 4090"), replace(GPU, multiprocessors=57)]
    parts = [*(tuning_key_parts(TENSORRT, gpu) for gpu in kinds), tuning_key_parts(NEWER, GPU)]
    assert len({json.dumps(one, sort_keys=True, default=str) for one in parts}) == 4


def test_tensorrt_rtx_and_a_build_without_a_gpu_have_none(tmp_path: Path) -> None:
    """TensorRT-RTX times nothing, and without a GPU there is nothing to time; both leave the builder alone."""
    with use_tuning_store(Cache(tmp_path)):
        for flavour, gpu in ((TENSORRT_RTX, GPU), (TENSORRT, None)):
            config = FakeConfig()
            timings = TimingCache.of(config, flavour, gpu)
            timings.keep()
            assert config.cache is None
    assert list(DiskStore.open(tmp_path).scan()) == []
    assert current_tuning_store() is None


def test_a_store_that_cannot_be_written_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only cache serves what it has, and nothing is added to it."""
    built(Cache(tmp_path), "a")
    monkeypatch.setenv("TRTCACHE_READONLY", "1")
    assert built(Cache(tmp_path), "a", "b") == ["b"]
    assert set(times(Cache(tmp_path))) == {"a"}
    monkeypatch.setenv("TRTCACHE_DISABLE", "1")
    assert built(Cache(tmp_path), "a", "b") == ["a", "b"]
