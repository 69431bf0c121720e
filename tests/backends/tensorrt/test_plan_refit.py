"""Putting weights into a plan: what is asked of TensorRT's refitter, by one that keeps its rules and has no GPU."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.backends.tensorrt.plans import Small, compiled, ids
from trtcache.backends.tensorrt import engine as plans
from trtcache.backends.tensorrt import runner
from trtcache.backends.tensorrt.callbacks import ErrorCollector, get_logger
from trtcache.backends.tensorrt.engine import refit_dtypes, refit_engine
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.compiler.refit import refit_artifact
from trtcache.errors import IncompatibleEngineError, NoDeviceError, RefitError

if TYPE_CHECKING:
    from pathlib import Path

    import trtcache

TRT = TENSORRT_RTX.load()
SHAPES = {"w0": (3,), "w1": (2, 3), "w2": (4,)}


class Engine:
    """What a refitter changes: values by name, and which of them TensorRT has combined."""

    def __init__(self, combined: tuple[str, ...] = ()) -> None:
        self.values = {name: np.zeros(shape, np.float32).reshape(-1) for name, shape in SHAPES.items()}
        self.combined, self.refits = frozenset(combined), []


class Refitter:
    """TensorRT's rules: weights are read when the engine is refitted, combined ones only together."""

    def __init__(self, engine: Engine, logger: object) -> None:
        self.engine, self.set = engine, dict[str, Any]()
        assert isinstance(logger, TRT.ILogger)

    def get_all_weights(self) -> list[str]:
        """Return all names."""
        return list(self.engine.values)

    def get_missing_weights(self) -> list[str]:
        """Return those that are combined with one that is set."""
        wanted = self.engine.combined if self.engine.combined & set(self.set) else frozenset()
        return sorted(wanted - set(self.set))

    def get_weights_prototype(self, name: str) -> SimpleNamespace:
        """Return what the plan has."""
        return SimpleNamespace(dtype=TRT.DataType.FLOAT, size=self.engine.values[name].size)

    def set_named_weights(self, name: str, weights: Any, location: Any) -> bool:
        """Take real weights of TensorRT's."""
        assert location == TRT.TensorLocation.HOST
        self.set[name] = weights
        return name != "w2" or weights.numpy()[0] != 13

    def refit_cuda_engine(self) -> bool:
        """Read them."""
        if self.get_missing_weights():
            return False
        self.engine.refits.append(sorted(self.set))
        for name, weights in self.set.items():
            self.engine.values[name] = weights.numpy().copy()
        return all(value[0] != 14 for value in self.engine.values.values())

    def unset_named_weights(self, name: str) -> bool:
        """Forget one."""
        return self.set.pop(name, None) is not None


def made(value: float) -> dict[str, torch.Tensor]:
    """Return weights of one value."""
    return {name: torch.full(shape, value) for name, shape in SHAPES.items()}


def put(engine: Engine, weights: Any) -> None:
    """Refit an engine; everything but the refitter is TensorRT-RTX's own."""
    trt = SimpleNamespace(
        Refitter=Refitter, Weights=TRT.Weights, DataType=TRT.DataType, TensorLocation=TRT.TensorLocation
    )
    refit_engine(trt, get_logger(TRT)[0], engine, weights, tuple(SHAPES), errors=ErrorCollector())


def values(engine: Engine) -> dict[str, float]:
    """Return the one value of each weight."""
    return {name: float(value[0]) for name, value in engine.values.items()}


def test_each_weight_is_set_once_and_read_before_the_next_is_made() -> None:
    """Weights that are made when they are asked for are never there two at a time."""

    class Made(dict[str, torch.Tensor]):
        def __getitem__(self, name: str) -> torch.Tensor:
            asked.append(name)
            assert len(engine.refits) == len(asked) - 1
            return super().__getitem__(name)

    engine, asked = Engine(), []
    put(engine, Made(made(2.0)))
    assert asked == ["w0", "w1", "w2"]
    assert values(engine) == {"w0": 2.0, "w1": 2.0, "w2": 2.0}


def test_weights_that_tensorrt_combined_are_set_together() -> None:
    """The engine is refitted when none is lacking."""
    engine = Engine(("w0", "w2"))
    put(engine, made(3.0))
    assert engine.refits == [["w0", "w1", "w2"]]


def test_a_weight_in_another_layout_is_laid_out() -> None:
    """TensorRT reads memory in order."""
    engine, weights = Engine(), made(1.0)
    weights["w1"] = torch.arange(6.0).reshape(3, 2).t()
    put(engine, weights)
    assert engine.values["w1"].tolist() == [0, 2, 4, 1, 3, 5]


def test_a_plan_that_takes_other_weights_than_were_proven_is_none_of_ours() -> None:
    """Both what it takes too many and what it lacks are named, and nothing is set."""
    engine = Engine()
    engine.values["w7"] = engine.values.pop("w2")
    with pytest.raises(IncompatibleEngineError, match="it also takes w7; it lacks w2"):
        put(engine, made(1.0))
    assert engine.refits == []


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"w0": torch.ones(3)}, "missing: w1, w2"),
        ({**made(1.0), "w0": torch.ones(4)}, r"w0 \(4 elements of torch.float32, the plan has 3 elements of"),
        ({**made(1.0), "w0": torch.ones(3).half()}, r"w0 \(3 elements of torch.float16, the plan has"),
        ({**made(1.0), "w0": torch.ones(3).long()}, r"w0 \(3 elements of torch.int64"),
        ({**made(1.0), "w2": torch.full((4,), 13.0)}, r"mismatched: w2 \(it gave no reason"),
        ({**made(1.0), "w1": torch.full((2, 3), 14.0)}, r"mismatched: w1 \("),
    ],
    ids=["missing", "size", "dtype", "whole", "refused", "failed"],
)
def test_what_tensorrt_does_not_take_is_named(weights: dict[str, torch.Tensor], message: str) -> None:
    """The error is the same kind as of weights that do not fit a program."""
    with pytest.raises(RefitError, match=message):
        put(Engine(), weights)


def test_a_weight_that_nobody_has_is_told() -> None:
    """TensorRT may combine a weight with one that has no name."""
    with pytest.raises(RefitError, match=r"missing: nameless \(TensorRT wants it with w0"):
        put(Engine(("w0", "nameless")), made(1.0))


def test_the_real_classes_take_what_they_are_given() -> None:
    """Weights of each dtype are of the size and bytes that were meant; a refitter wants a real engine."""
    for dtype, kind in refit_dtypes(TRT).items():
        tensor = torch.arange(5).to(dtype)
        weights = TRT.Weights(kind, tensor.data_ptr(), tensor.numel())
        assert (weights.dtype, weights.size, weights.nbytes) == (kind, 5, tensor.nbytes)
    assert TRT.Weights(TRT.DataType.FLOAT, torch.arange(5.0).data_ptr(), 5).size == 5
    told = str(TRT.Refitter.set_named_weights.__doc__)
    assert "weights: tensorrt_rtx_bindings.tensorrt_rtx.Weights, location:" in told
    with pytest.raises(TypeError):
        TRT.Refitter(None, None)


@pytest.fixture(scope="module")
def kept(engines: Path) -> trtcache.CompiledModule:
    """A real plan of TensorRT-RTX, kept where nothing runs it."""
    return compiled(Small(), (ids(),), engines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lin.bias": None}, r"missing: lin\.bias"),
        ({"lin.bia": torch.ones(4)}, r"unexpected: lin\.bia"),
        ({"lin.bias": torch.ones(5)}, r"lin\.bias \(shape \(5,\), the engine has \(4,\)\)"),
        ({"lin.bias": torch.ones(4).half()}, r"lin\.bias \(dtype float16"),
    ],
    ids=["missing", "extra", "misshapen", "dtype"],
)
def test_a_kept_plan_refuses_weights_that_do_not_fit(
    kept: trtcache.CompiledModule, change: dict[str, Any], message: str
) -> None:
    """What is wrong with weights is told first, on any machine."""
    state = Small().state_dict() | change
    with pytest.raises(RefitError, match=message):
        kept.refit({name: one for name, one in state.items() if one is not None})


@pytest.mark.slow
def test_a_kept_plan_with_its_weights_in_it_takes_no_others(kept: trtcache.CompiledModule, tmp_path: Path) -> None:
    """Weights that fit, from a module and from a file, are refused, also where they are to be compared."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: tests/gpu has what it does")
    save_file(Small().state_dict(), tmp_path / "w.safetensors")
    for weights in (Small(), Small().state_dict(), tmp_path / "w.safetensors"):
        with pytest.raises(RefitError, match="the plan is not refittable"):
            kept.refit(weights)
    with pytest.raises(RefitError, match="the plan is not refittable"):
        kept.refit(Small(), verify=True)


def test_a_plan_is_written_with_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What TensorRT serialises of the refitted engine comes into the file as a whole; where it has none, it is told."""
    engine = Engine()
    trt = SimpleNamespace(
        Refitter=Refitter, Weights=TRT.Weights, DataType=TRT.DataType, TensorLocation=TRT.TensorLocation
    )
    stored = {"format": 1, "inputs": [], "outputs": [], "refit": True, "weights": {"refittable": list(SHAPES)}}
    flavour = SimpleNamespace(title="it", version="1.7", load=lambda: trt)
    monkeypatch.setattr(plans, "get_logger", lambda _: get_logger(TRT))
    monkeypatch.setattr(runner, "deserialize", lambda *_: (None, engine))
    monkeypatch.setattr(plans, "require_loadable_version", lambda *_: None)
    monkeypatch.setattr(engine, "serialize", lambda: repr(values(engine)).encode(), raising=False)
    plan = plans.refit_plan(flavour, b"plan", json.dumps(stored).encode(), made(5.0))  # type: ignore[arg-type]
    assert bytes(plan) == b"{'w0': 5.0, 'w1': 5.0, 'w2': 5.0}"
    monkeypatch.setattr(engine, "serialize", lambda: None)
    with pytest.raises(IncompatibleEngineError, match="it cannot write it"):
        plans.refit_plan(flavour, b"plan", json.dumps(stored).encode(), made(5.0))  # type: ignore[arg-type]


def test_a_plan_is_written_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the error says so."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    entry: Any = SimpleNamespace(kind="tensorrt", read=None)
    with pytest.raises(NoDeviceError, match="refitted on its GPU, and there is none here"):
        refit_artifact(entry, None, None)  # type: ignore[arg-type]
