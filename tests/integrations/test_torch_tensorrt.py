"""Conversions of torch_tensorrt from the cache: every version's contract, hits, builds, refits, and what goes wrong."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.integrations.partitions import Small, partition, small
from tests.integrations.stand_in import VALUES
from trtcache.cache import Cache
from trtcache.errors import BuildForbiddenError
from trtcache.integrations.torch_tensorrt.installation import CONTRACTS
from trtcache.integrations.torch_tensorrt.results import RESULT_MEMBER
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integrations.conftest import Shop

VERSIONS = [f"{version}.1" for version in CONTRACTS]


@pytest.fixture
def door(provide: Callable[..., None], cache: Cache, shop: Shop) -> Shop:
    """The stand-in for 2.14, with the cache before it."""
    provide("2.14.0")
    trtcache.install(cache=cache)
    import_module("torch_tensorrt")
    return shop


def _entries(cache: Cache) -> list[Path]:
    assert cache.store is not None
    return [cache.store.path(one.digest) for one in cache.store.scan()]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_program_builds_nothing(provide: Callable[..., None], cache: Cache, shop: Shop, version: str) -> None:
    """In every version the result of a hit is the result of the build: its class, every field, every value."""
    provide(version)
    trtcache.install(cache=cache)
    import_module("torch_tensorrt")
    first = shop.compile(partition())
    assert shop.done() == ["build", "load"]
    again = shop.compile(partition())
    assert shop.done() == ["load"]
    assert again.result == first.result
    assert type(again.result) is type(first.result)
    for name, value in VALUES.items():
        expected = None if name == "weight_name_map" else value  # immutable weights have none
        assert getattr(again.result, name, expected) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_other_weights_are_put_into_the_same_engine(
    provide: Callable[..., None], cache: Cache, shop: Shop, version: str
) -> None:
    """With ``immutable_weights=False`` torch_tensorrt's own refit gets the stored engine and this model's weights."""
    provide(version)
    trtcache.install(cache=cache)
    import_module("torch_tensorrt")
    first = shop.compile(small(0), immutable_weights=False)
    assert shop.done() == ["build", "load"]
    module = small(1)
    other = shop.compile(module, immutable_weights=False)
    assert shop.done() == ["refit", "load"]
    weights = import_module("torch_tensorrt.dynamo.conversion._conversion").weights
    assert other.serialized_engine.endswith(weights(module).encode())
    assert other.serialized_engine.split(b"|")[0] == first.serialized_engine.split(b"|")[0]
    changed = {name: None for name in ("serialized_engine", "weight_name_map") if name in other.result._fields}
    assert other.result._replace(**changed) == first.result._replace(**changed)
    assert getattr(other.result, "weight_name_map", None) is None


def test_a_refit_that_fails_is_a_build(door: Shop, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever torch_tensorrt raises while it refits a hit, the engine is built and takes the other's place."""
    door.compile(small(0), immutable_weights=False)
    conversion = import_module("torch_tensorrt.dynamo.conversion._conversion")
    original = conversion.made

    def fail(*args: Any, **kwargs: Any) -> Any:
        if door.log.read_text().endswith("refit\n"):
            raise AssertionError("w is not found in weight mapping")
        return original(*args, **kwargs)

    monkeypatch.setattr(conversion, "made", fail)
    door.done()
    door.compile(small(1), immutable_weights=False)
    assert door.done() == ["refit", "build", "load"]
    assert len(_entries(cache)) == 1


def test_a_partition_can_be_converted_by_itself(door: Shop, cache: Cache) -> None:
    """As ``convert_exported_program_to_serialized_trt_engine`` does, without a runtime module."""
    compiler = import_module("torch_tensorrt.dynamo._compiler")
    first, again = (compiler.interpret_module_to_result(partition(), [], door.settings()) for _ in range(2))
    assert again == first
    assert door.done() == ["build"]


def test_frozen_engines_are_of_their_weights(door: Shop, cache: Cache) -> None:
    """With the default settings other weights are another entry, kept beside the refittable one."""
    for seed in (0, 1, 0, 1):
        door.compile(small(seed))
    door.compile(small(0), immutable_weights=False)
    assert door.done().count("build") == 3
    assert len(_entries(cache)) == 3


def test_the_caller_s_own_engine_cache_is_not_asked(door: Shop) -> None:
    """What the program passes as its engine cache, with its keys and its pickles, is left out."""

    class Own:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    module = partition()
    conversion = import_module("torch_tensorrt.dynamo.conversion._conversion")
    settings = door.settings(cache_built_engines=True, reuse_cached_engines=True, immutable_weights=False)
    for _ in range(2):
        conversion.convert_module(module, [], settings, engine_cache=Own())
    assert door.done() == ["build", "load", "refit", "load"]


def test_sizes_are_those_of_the_partition_at_hand(door: Shop) -> None:
    """What torch_tensorrt says of output sizes is made anew on a hit: it speaks of the program's own symbols."""
    first, again = (door.compile(partition()) for _ in range(2))
    shapes = [one.result.symbolic_shape_expressions for one in (first, again)]
    assert shapes[0] == shapes[1]
    assert shapes[0] is not shapes[1]


def test_a_failed_build_is_the_program_s(door: Shop, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception is torch_tensorrt's own, nothing is stored, and the next conversion does not wait."""
    conversion = import_module("torch_tensorrt.dynamo.conversion._conversion")
    error = RuntimeError("no kernel for this")

    def fail(*_: object) -> bytes:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(conversion, "build", fail)
        for immutable in (True, False):
            with pytest.raises(RuntimeError) as caught:
                door.compile(partition(), immutable_weights=immutable)
            assert caught.value is error
    assert _entries(cache) == []
    thread = threading.Thread(target=door.compile, args=(partition(),))
    thread.start()
    door.compile(partition())
    thread.join()
    assert door.done().count("build") == 1


def test_threads_that_want_the_same_build_it_once(door: Shop) -> None:
    """One builds, the others wait and hit."""
    modules = [partition() for _ in range(4)]
    threads = [threading.Thread(target=door.compile, args=(module,)) for module in modules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(door.done()) == ["build", "load", "load", "load", "load"]


class _Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, pickle.dumps(_Hostile()), None], ids=["empty", "foreign", "pickle", "cut"]
)
@pytest.mark.parametrize("immutable", [True, False])
def test_a_damaged_entry_is_a_miss(door: Shop, cache: Cache, content: bytes | None, immutable: bool) -> None:
    """Whatever lies in an entry's place, the engine is built again and nothing is executed."""
    door.compile(partition(), immutable_weights=immutable)
    (path,) = _entries(cache)
    path.write_bytes(path.read_bytes()[:-9] if content is None else content)
    door.compile(partition(), immutable_weights=immutable)
    door.compile(partition(), immutable_weights=immutable)
    assert door.done().count("build") == 2


@pytest.mark.parametrize(
    "document",
    [b"[]", b"{}", b"null", b"\xff", b'{"input_names": 3}', b'{"input_names": {"$dict": 7}, "output_names": []}'],
)
def test_an_entry_with_something_else_in_it_is_a_miss(door: Shop, cache: Cache, document: bytes) -> None:
    """An entry under the right key whose result was written by hand is put aside and built again."""
    door.compile(partition())
    assert cache.store is not None
    (path,) = _entries(cache)
    key = cache.store.header(path.stem).key
    cache.store.put(key, {"engine": b"x", RESULT_MEMBER: document}, kind=key.kind)
    assert door.compile(partition()).result.input_names == ["x"]
    assert door.done() == ["build", "load", "build", "load"]


def test_an_engine_that_is_refused_is_built_again(door: Shop, cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    """TensorRT does not load a hit: it is built, loaded, and takes the place of the other."""
    door.compile(partition())
    assert cache.store is not None
    (path,) = _entries(cache)
    key = cache.store.header(path.stem).key
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("torch_tensorrt.dynamo.conversion._conversion"), "build", lambda *_: b"refused")
        path.unlink()
        with pytest.raises(RuntimeError, match="does not load"):
            door.compile(partition())
    assert cache.store.header(key.digest).key == key
    door.done()
    module = door.compile(partition())
    assert b"refused" not in module.serialized_engine
    assert door.done() == ["load", "build", "load"]
    assert "could not be used" in caplog.text
    assert DiskStore.open(cache.store.root).header(key.digest).build_s > 0


def test_an_entry_stays_if_it_was_not_at_fault(door: Shop, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the engine that is built instead does not load either (no memory, no GPU) the entry is kept."""
    door.compile(partition())

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(import_module("torch_tensorrt.dynamo.conversion._conversion"), "TorchTensorRTModule", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            door.compile(partition())
    door.done()
    door.compile(partition())
    assert door.done() == ["load"]


def test_a_result_with_no_stored_form_is_handed_on(
    door: Shop, cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The program gets it, nothing is kept, and the reason is told once."""
    source = import_module("torch_tensorrt.dynamo.conversion._conversion")
    original = source.made
    monkeypatch.setattr(source, "made", lambda *a, **k: original(*a, **k)._replace(aliased_io=object()))
    for _ in range(2):
        assert type(door.compile(partition()).result.aliased_io) is object
    assert _entries(cache) == []
    assert caplog.text.count("has no stored form") == 1


def test_what_cannot_be_described_is_built_without_the_cache(
    door: Shop, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    """A custom operator of unknown version: torch_tensorrt is called as the program called it, with one warning."""
    with torch.library._scoped_library("trtcache_partitions", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("twice", torch.empty_like, "Meta")
        module = partition(Small(function=torch.ops.trtcache_partitions.twice))
        for _ in range(2):
            door.compile(module)
        assert door.done() == ["build", "load"] * 2
        assert _entries(cache) == []
        assert caplog.text.count("trtcache.install(operator_versions=") == 1
        trtcache.install(cache=cache, operator_versions={"trtcache_partitions::twice": "1"})
        for _ in range(2):
            door.compile(module)
        assert door.done() == ["build", "load", "load"]


def test_the_debugger_s_engines_are_not_kept(door: Shop, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch_tensorrt's ``Debugger`` changes how engines are built by changing the interpreter's constructor."""
    import functools

    interpreter = import_module("torch_tensorrt.dynamo.conversion._conversion").TRTInterpreter
    monkeypatch.setattr(interpreter, "__init__", functools.partialmethod(interpreter.__init__, _debugger_config=1))
    door.compile(partition())
    assert _entries(cache) == []


def test_a_forbidden_build_is_an_error(door: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TRTCACHE_FORBID_BUILD=1`` shows a program that would build."""
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    trtcache.install(cache=tmp_path / "other")
    with pytest.raises(BuildForbiddenError):
        door.compile(partition())
    assert door.done() == []


def test_who_does_not_wait_for_another_builds(door: Shop, cache: Cache, tmp_path: Path) -> None:
    """With ``on_busy="eager"`` too: torch_tensorrt has no engine to do without."""
    door.compile(partition())
    (path,) = _entries(cache)
    other = Cache(tmp_path / "other", on_busy="eager")
    trtcache.install(cache=other)
    assert other.store is not None
    with other.store.flight(path.stem):
        door.compile(partition())
    assert door.done() == ["build", "load", "build", "load"]
    assert _entries(other) == []


def test_unknown_settings_are_told_once_and_keyed(door: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """A setting of a later version parts entries."""
    for value in (1, 2, 1):
        settings = door.settings()
        settings.new_fusion = value
        door.compile(partition(), settings)
    assert door.done().count("build") == 2
    assert caplog.text.count("new_fusion") == 1


def test_a_cache_that_is_off_changes_nothing(door: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TRTCACHE_DISABLE=1`` builds each time."""
    monkeypatch.setenv("TRTCACHE_DISABLE", "1")
    trtcache.install()
    for _ in range(2):
        door.compile(partition())
    assert door.done() == ["build", "load"] * 2


def test_the_official_door(
    provide: Callable[..., None], cache: Cache, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """``custom_engine_cache=EngineCache()`` serves engines that can be refitted, pickles nothing, holds nothing."""
    provide("2.14.0")
    from trtcache.integrations.torch_tensorrt import engine_cache

    engines = engine_cache.EngineCache(cache)
    settings = shop.settings(cache_built_engines=True, reuse_cached_engines=True, immutable_weights=False)
    convert = import_module("torch_tensorrt.dynamo.conversion").convert_module
    modules = [small(seed) for seed in (0, 1)]
    for one in modules:
        convert(one, [], settings, engine_cache=engines)
    assert shop.done() == ["build", "load", "refit", "load"]
    assert engines._pending == {}
    held = [weakref.ref(modules.pop()) for _ in range(2)]
    del one
    gc.collect()
    assert [ref() for ref in held] == [None, None]
    (path,) = _entries(cache)
    path.write_bytes(b"damaged")
    convert(partition(), [], settings, engine_cache=engine_cache.EngineCache(cache))
    assert shop.done() == ["build", "load"]
    assert engines.check("unheard of") is None
    assert engines.load("any") is None
    with pytest.raises(TypeError, match="pickles"):
        engines.save("any", b"")
    with torch.library._scoped_library("trtcache_partitions", "FRAGMENT") as library:
        library.define("thrice(Tensor x) -> Tensor")
        library.impl("thrice", torch.empty_like, "Meta")
        assert engines.get_hash(partition(Small(function=torch.ops.trtcache_partitions.thrice)), [], settings) == ""
        engines.insert("", ())
