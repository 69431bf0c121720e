"""The real torch_tensorrt and the real builder of TensorRT-RTX, as far as a machine without a GPU takes them.

Partitions, keys, lowering, plans and every path of the cache are real. Not run: loading a plan (``no_gpu`` has its
bytes in the place of an engine), and building one that can be refitted, for which TensorRT-RTX wants CUDA: there the
test makes the bytes. ``make test-torch-tensorrt`` installs what is needed and runs this.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if importlib.util.find_spec("torch_tensorrt") is None:
    pytest.skip("torch_tensorrt is not installed (5.7 GB): make test-torch-tensorrt", allow_module_level=True)

import torch_tensorrt
from torch_tensorrt.dynamo import _compiler
from torch_tensorrt.dynamo._engine_cache import BaseEngineCache
from torch_tensorrt.dynamo._settings import CompilationSettings
from torch_tensorrt.dynamo.conversion import _conversion, _TRTInterpreter

import trtcache
from tests.integrations.no_gpu.sitecustomize import Engine
from tests.keys.pairs import interfaces, layers, tensors
from tests.keys.pairs.pair import drawn, made
from trtcache.cache import Cache
from trtcache.integrations.torch_tensorrt import EngineCache
from trtcache.integrations.torch_tensorrt.installation import CONTRACTS, TorchTensorrt, breach, contract_for
from trtcache.integrations.torch_tensorrt.request import Conversion, request_for, unknown_settings
from trtcache.weights.fingerprints import Fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.keys.pairs.pair import Program

_SERVE = """
import torch
import torch_tensorrt

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        x = torch.nn.functional.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3))).softmax(-1)

torch.manual_seed(0)
model = Model().eval()
inputs = [torch.randn(1, 3, 64, 64)]
optimized = torch_tensorrt.compile(model, ir="dynamo", inputs=inputs, min_block_size=1)
print([type(one).__name__ for one in optimized.children()])
"""


class Model(torch.nn.Module):
    """Folded constants, an index, weights."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.lin = torch.nn.Linear(8, 4)
        self.register_buffer("order", torch.arange(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.lin(self.conv(x).relu().mean((2, 3)))[:, self.order] + 2 * torch.ones(4)
        return out


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    """An empty cache, before torch_tensorrt until the test's end."""
    opened = Cache(tmp_path / "cache")
    trtcache.install(cache=opened)
    yield opened
    trtcache.uninstall()


def _plans(model: torch.nn.Module, **settings: Any) -> list[bytes]:
    x = torch.randn(2, 3, 16, 16)
    exported = torch.export.export(model.eval(), (x,))
    compiled = torch_tensorrt.dynamo.compile(exported, arg_inputs=[x], min_block_size=1, **settings)
    return [bytes(one.serialized_engine) for one in compiled.children() if hasattr(one, "serialized_engine")]


def _entries(cache: Cache) -> list[Path]:
    assert cache.store is not None
    return [cache.store.path(one.digest) for one in cache.store.scan()]


def test_the_contract_is_kept() -> None:
    """The installed version is in the table and is as the table says; all its settings are known."""
    contract = contract_for(torch_tensorrt.__version__)
    assert contract is not None
    assert contract.version in CONTRACTS
    assert breach(contract, _conversion) is None
    assert unknown_settings(CompilationSettings()) == []
    assert {field.name for field in dataclasses.fields(CompilationSettings)} == set(vars(CompilationSettings()))


def test_a_plan_is_built_once(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT-RTX builds the plan; the second compilation has the same bytes and makes no interpreter."""
    first = _plans(Model())
    assert len(first) == 1
    monkeypatch.setattr(_conversion, "TRTInterpreter", None)  # what builds
    assert _plans(Model()) == first


def test_other_weights_are_another_frozen_engine(cache: Cache) -> None:
    """With the default settings the weights are in the plan."""
    for seed in (0, 1, 0):
        _plans(Model(seed))
    assert len(_entries(cache)) == 2


def test_a_failed_build_is_the_program_s(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the builder raises reaches the program as it is, nothing is stored and nothing stays locked."""
    with monkeypatch.context() as patch:
        patch.setattr(_TRTInterpreter.TRTInterpreter, "_populate_trt_builder_config", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _plans(Model())
    assert _entries(cache) == []
    assert _plans(Model())


@pytest.mark.parametrize("content", [b"", b"\x80\x04.", b"x" * 5000], ids=["empty", "pickle", "foreign"])
def test_a_damaged_entry_is_a_miss(cache: Cache, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """The plan is built again."""
    _plans(Model())
    (path,) = _entries(cache)
    path.write_bytes(content)
    assert _plans(Model())
    monkeypatch.setattr(_conversion, "TRTInterpreter", None)  # what builds
    assert _plans(Model())


def test_a_plan_that_is_not_loaded_is_built_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime module refuses a hit once: the program goes on with a plan that was built."""
    from torch_tensorrt.dynamo.runtime import TorchTensorRTModule

    _plans(Model())
    refused = []

    def once(self: object) -> None:
        if not refused:
            refused.append(self)
            raise RuntimeError("the engine is of another version")

    monkeypatch.setattr(TorchTensorRTModule, "setup_engine", once)
    assert _plans(Model())
    assert len(refused) == 1
    assert len(_entries(cache)) == 1


@pytest.mark.parametrize("door", ["install", "EngineCache"])
def test_refits_are_torch_tensorrt_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str) -> None:
    """``immutable_weights=False``: what upstream would keep is kept, and its refit is called with the new partition.

    The plan's bytes are the test's, as is what writes weights into them: both want CUDA.
    """
    refitted = []
    made_by_test = _TRTInterpreter.TRTInterpreterResult(Engine(b"plan"), ["x"], ["output0"], False, False, {})
    monkeypatch.setattr(_TRTInterpreter.TRTInterpreter, "run", lambda *_: made_by_test)
    monkeypatch.setattr(
        "torch_tensorrt.dynamo._refit._refit_single_trt_engine_with_gm", lambda **given: refitted.append(given)
    )
    settings: dict[str, Any] = {"immutable_weights": False}
    if door == "install":
        trtcache.install(cache=tmp_path / "cache")
    else:
        engines = EngineCache(tmp_path / "cache")
        assert isinstance(engines, BaseEngineCache)
        settings |= {"custom_engine_cache": engines, "cache_built_engines": True, "reuse_cached_engines": True}
    try:
        first, again = _plans(Model(0), **settings), _plans(Model(1), **settings)
    finally:
        trtcache.uninstall()
    assert first == again == [b"plan"]
    assert len(refitted) == 1
    assert refitted[0]["old_engine"].plan == b"plan"
    assert torch.equal(refitted[0]["new_gm"].lin.weight, Model(1).lin.weight)


def _run(folder: Path) -> subprocess.Popen[str]:
    script = folder / "serve.py"
    script.write_text(_SERVE)
    environ = {**os.environ, "TRTCACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    environ["PYTHONPATH"] = str(Path(__file__).parent / "no_gpu")
    command = [sys.executable, "-W", "ignore", "-m", "trtcache_cli", "run", str(script)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_script_of_the_tutorial_s_is_served_untouched(tmp_path: Path) -> None:
    """Under ``trtcache run``: two at once build one plan, and a third process hits."""
    both = [_run(tmp_path) for _ in range(2)]
    said = sorted(child.communicate()[1].splitlines()[-1] for child in both)
    assert said[0].startswith("trtcache: 1 built in ")
    assert said[1].startswith("trtcache: 1 hit, ")
    third = _run(tmp_path)
    out, err = third.communicate()
    assert out.splitlines()[-1] == "['TorchTensorRTModule']"
    assert err.splitlines()[-1].startswith("trtcache: 1 hit, ")


_IN_TORCH = {"embedding: bag", "fft: norm", "in place: on an input"}
_PARTS_CALLS_ONLY = {
    *("outputs: one in a tuple", "outputs: list", "outputs: names", "outputs: ordered mapping", "outputs: nesting"),
    "inputs: structure",
}


@pytest.mark.slow
@pytest.mark.parametrize("immutable", [True, False], ids=["frozen", "refittable"])
def test_no_pair_of_the_key_suite_collides(monkeypatch: pytest.MonkeyPatch, immutable: bool) -> None:
    """Through torch_tensorrt's own lowering and partitioner, about two minutes.

    Partitions of two programs are equal only where the programs differ in what stays in torch, or in how the call's
    arguments and results are nested.
    """
    library, fingerprints = TorchTensorrt.of(torch_tensorrt), Fingerprints()
    keys: list[str] = []

    def convert(module: Any, inputs: Any, settings: Any, name: str = "", **_: Any) -> Any:
        conversion = Conversion(module, inputs, settings)
        keys.append(
            request_for(library, conversion, name=name, fingerprints=fingerprints, operator_versions={}).key.digest
        )
        module.set_output_tensors_as_unowned = lambda _: None
        return module

    def keyed(program: Program, inputs: tuple[Any, ...]) -> list[str]:
        keys.clear()
        args = drawn(inputs if program.inputs is None else program.inputs)
        exported = torch.export.export(made(program), args, dynamic_shapes=program.dynamic, strict=False)
        torch_tensorrt.dynamo.compile(exported, arg_inputs=list(args), min_block_size=1, immutable_weights=immutable)
        return list(keys)

    monkeypatch.setattr(_compiler, "convert_module", convert)
    equal, refused, began_s = set(), [], time.perf_counter()
    pairs = [*layers.pairs(), *tensors.pairs(), *interfaces.pairs()]
    for pair in pairs:
        try:
            one, other = (keyed(side, pair.inputs) for side in pair.sides)
        except (RuntimeError, AttributeError) as error:  # torch_tensorrt's own: it cannot lower the program
            refused.append(f"{pair.name}: {error!r:.90}")
            continue
        if one and one == other:
            equal.add(pair.name)
    print(f"{len(pairs)} pairs, {len(refused)} refused: {refused}; equal: {sorted(equal)}")  # noqa: T201
    print(f"{time.perf_counter() - began_s:.0f} s")  # noqa: T201
    assert equal <= _IN_TORCH | _PARTS_CALLS_ONLY
    assert len(refused) < 8
