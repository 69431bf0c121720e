"""A plan on its GPU, with TensorRT and CUDA stood in for: how it is loaded, given weights, run and refitted."""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch

from tests.backends.tensorrt.fake_runtime import Context, Cpu, DataType, Engine, TensorLocation
from tests.backends.tensorrt.test_preflight import FACTS, HERE, L4, for_product
from tests.backends.tensorrt.test_runner import doubling
from trtcache.backends.tensorrt import engine as loaded
from trtcache.backends.tensorrt import runner
from trtcache.backends.tensorrt.engine import LoadedPlan, UnloadedPlan, load_plan
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.errors import IncompatibleEngineError, NoDeviceError, RefitError, RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

CPU = torch.device("cpu")
X = torch.arange(4.0)
EngineValidity = enum.Enum("EngineValidity", "VALID SUBOPTIMAL INVALID")


class Logger:
    """What a logger is made from."""

    Severity = enum.Enum("Severity", "VERBOSE INFO WARNING ERROR INTERNAL_ERROR")


class Bits(enum.IntEnum):
    """What can be wrong with a plan."""

    VERSION_MISMATCH = 1
    UNSUPPORTED_CC = 2
    OLD_CUDA_DRIVER = 4
    OLD_CUDA_RUNTIME = 8
    INSUFFICIENT_GPU_MEMORY = 16
    MALFORMED_ENGINE = 32
    CUDA_ERROR = 64


class Runtime:
    """Makes a doubling engine of ``plan``, and nothing of anything else."""

    allowed: ClassVar[list[bool]] = []
    bits: ClassVar[int] = 0

    def __init__(self, _logger: Any) -> None:
        self.engine_host_code_allowed = True

    def get_engine_validity(self, _plan: bytes) -> tuple[Any, int]:
        return (EngineValidity.INVALID if self.bits else EngineValidity.VALID), self.bits

    def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
        self.allowed.append(self.engine_host_code_allowed)
        return doubling() if plan == b"plan" else None


class Rtx:
    """The module."""

    ILogger = Logger
    DataType = DataType
    TensorLocation = TensorLocation
    EngineValidity = EngineValidity
    EngineInvalidityDiagnostics = Bits
    Runtime = Runtime

    @staticmethod
    def init_libnvinfer_plugins(_logger: Any, _namespace: str) -> bool:
        return True


class Flavour:
    """What says which TensorRT it is."""

    name, title, version, compiles_at_run = "tensorrt_rtx", "TensorRT-RTX", "1.7.1.116", False

    def load(self) -> type[Rtx]:
        return Rtx


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CudaDevice", lambda _: Cpu())
    monkeypatch.setattr(Runtime, "allowed", [])
    monkeypatch.setattr(Runtime, "bits", 0)


def load(plan: bytes = b"plan", facts: Any = FACTS, weights: Mapping[str, torch.Tensor] | None = None) -> Any:
    """Load a plan on a machine that has its GPU."""
    return load_plan(Flavour(), plan, facts, device=CPU, weights=weights or {}, machine=HERE)  # type: ignore[arg-type]  # a fake


def test_a_plan_is_loaded_and_run() -> None:
    """No code for the host is allowed, and the engine answers."""
    plan = load()
    assert isinstance(plan, LoadedPlan)
    assert Runtime.allowed == [False]
    assert plan.run([X])[0].tolist() == (X * 2).tolist()


def test_host_code_is_allowed_in_a_version_compatible_plan() -> None:
    """Such a plan contains a runtime, and TensorRT loads it only if that is allowed; a refit loads it again."""
    facts = replace(FACTS, version_compatible=True, refit=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loaded, "refit_engine", lambda *_, **__: None)
        load(facts=facts).refit({})
    assert Runtime.allowed == [True, True]


def test_a_plan_that_does_not_load_is_unfit() -> None:
    """TensorRT returns none, and says why in its log."""
    with pytest.raises(IncompatibleEngineError, match="TensorRT-RTX cannot load it: it gave no reason"):
        load(b"junk")


def test_a_plan_that_rtx_cannot_run_here_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old driver costs no entry: a call says so."""
    monkeypatch.setattr(Runtime, "bits", int(Bits.OLD_CUDA_DRIVER))
    plan = load()
    assert isinstance(plan, UnloadedPlan)
    with pytest.raises(NoDeviceError, match="runs on its GPU: TensorRT-RTX cannot run it: old cuda driver"):
        plan.run([X])
    with pytest.raises(RefitError, match="the plan is not refittable"):
        plan.refit({})
    with pytest.raises(NoDeviceError, match="refitted on its GPU: there is none"):
        UnloadedPlan(TENSORRT_RTX, b"", {}, "there is none").refit({})


def test_a_plan_for_another_product_is_loaded_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """The caller allowed it; the log names the product."""
    assert isinstance(load(facts=replace(FACTS, target=for_product(L4))), LoadedPlan)
    assert "was built for NVIDIA L4" in caplog.text


def test_weights_are_put_in_when_a_plan_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """At load, since whose weights are in it nobody knows, and at each refit, into another engine of the same plan."""
    put: list[tuple[Any, dict[str, torch.Tensor], Any]] = []

    def refit_engine(_trt: Any, _logger: Any, engine: Any, given: Any, names: Any, **_: Any) -> None:
        put.append((engine, given, names))

    monkeypatch.setattr(loaded, "refit_engine", refit_engine)
    facts = replace(FACTS, refit=True, refittable=("w0",))
    one, other = {"w0": X}, {"w0": X + 1}
    first = load(facts=facts, weights=one)
    second = first.refit(other)
    assert [(given, names) for _, given, names in put] == [(one, ("w0",)), (other, ("w0",))]
    assert put[0][0] is not put[1][0]
    assert first.run([X])[0].tolist() == second.run([X])[0].tolist()


def test_a_plan_that_takes_none_says_so() -> None:
    """Its weights are in its key."""
    with pytest.raises(RefitError, match="the plan is not refittable"):
        load().refit({"w0": X})


def test_memory_that_runs_out_is_an_error_of_the_call() -> None:
    """The engine stays, and the next call may have it."""
    plan = load()
    plan._runner.engine.memory = False
    with pytest.raises(RunError, match="no memory for a context"):
        plan.run([X])
    plan._runner.engine.memory = True
    assert plan.run([X])[0].shape == X.shape
    assert isinstance(plan._runner.engine.contexts[0], Context)
