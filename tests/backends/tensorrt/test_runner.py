"""The runner of plans, with TensorRT and CUDA stood in for: what it tells them, in what order, and of which memory."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.backends.tensorrt.fake_runtime import Context, Cpu, DataType, Engine, Stream, Tensor, TensorLocation, Trt
from tests.backends.tensorrt.plans import compiled
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.backends.tensorrt.preflight import PlanFacts
from trtcache.backends.tensorrt.runner import Runner, address, deserialize, dtypes_of, empty, place_tensor
from trtcache.errors import IncompatibleEngineError, NoDeviceError, RunError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CPU = torch.device("cpu")


def facts(*arguments: str, results: tuple[str, ...] = ("out0",)) -> PlanFacts:
    """Return what is stored beside a plan with these inputs."""
    return PlanFacts(1, arguments, results, False, (), "", None, {}, False)


def doubling(**changed: Tensor) -> Engine:
    """Return an engine with ``out0 = in0 * 2``."""

    def compute(tensors: Mapping[str, torch.Tensor]) -> None:
        tensors["out0"].copy_(tensors["in0"] * 2)

    tensors = {"in0": Tensor(), "out0": Tensor(), **changed}
    return Engine(tensors, lambda _, shapes: shapes["in0"], compute)


def runner_of(engine: Engine, *arguments: str, place: Cpu | None = None) -> Runner:
    """Return a runner whose place is the CPU."""
    return Runner(Trt, "tensorrt_rtx", engine, facts(*(arguments or ("in0",))), home=CPU, place=place or Cpu())


@pytest.mark.parametrize(
    "given",
    [
        torch.randn(3, 4),
        torch.randn(4, 3).t(),
        torch.randn(65)[1:],
        torch.randn(()),
        torch.randn(0, 3),
        torch.randn(1, 4).expand(3, 4),
    ],
    ids=["dense", "transposed", "odd_address", "scalar", "empty", "expanded"],
)
def test_inputs_of_every_layout_reach_the_engine(given: torch.Tensor) -> None:
    """TensorRT is told of dense memory at an address that it takes, and the caller's tensor stays as it is."""
    before = given.clone()
    (found,) = runner_of(doubling()).run([given])
    assert torch.equal(found, before * 2)
    assert torch.equal(given, before)


def test_sizes_may_change_from_call_to_call() -> None:
    """Each call says its own shapes, and its outputs have them."""
    runner = runner_of(doubling())
    assert [tuple(runner.run([torch.ones(rows, 2)])[0].shape) for rows in (2, 7, 3)] == [(2, 2), (7, 2), (3, 2)]


def test_a_shape_outside_the_profile_is_refused() -> None:
    """TensorRT's no becomes an error that names the input and its shape."""
    with pytest.raises(RunError, match=r"rejects \(65,\) for in0"):
        runner_of(doubling()).run([torch.ones(65)])


def test_each_thread_has_a_context_of_its_own() -> None:
    """Two calls of one thread share one, and another thread gets another."""
    engine = doubling()
    runner = runner_of(engine)
    for _ in range(2):
        runner.run([torch.ones(2)])
    thread = threading.Thread(target=runner.run, args=([torch.ones(2)],))
    thread.start()
    thread.join()
    assert [len(context.streams) for context in engine.contexts] == [2, 1]


def test_calls_are_on_the_callers_stream() -> None:
    """A thread that goes to another stream lets that one wait for its last; inputs are held until theirs is done."""
    place, engine = Cpu(), doubling()
    runner = runner_of(engine, place=place)
    runner.run([torch.ones(2)])
    runner.run([torch.ones(2)])
    place.current = other = Stream(2)
    runner.run([torch.ones(2)])
    assert engine.contexts[0].streams == [1, 1, 2]
    assert other.waited == [1]
    assert place.held == [((2,), 1), ((2,), 1), ((2,), 2)]


def test_contexts_end_after_their_work() -> None:
    """A runner that is dropped while its last call may run waits for it, and its contexts go before its engine."""
    place = Cpu()
    runner = runner_of(doubling(), place=place)
    runner.run([torch.ones(2)])
    threads = runner._threads
    assert place.current.synchronized == 0
    del runner
    gc.collect()
    assert place.current.synchronized == 1
    assert threads == {}


def test_an_input_that_the_network_dropped_is_not_told_of() -> None:
    """Arguments are matched by name, so those after it stay in their places."""
    (found,) = runner_of(doubling(), "unused", "in0").run([torch.ones(5), torch.ones(2)])
    assert torch.equal(found, torch.full((2,), 2.0))


def test_sizes_are_read_on_the_host_and_kept() -> None:
    """An input that TensorRT reads on the CPU is not held on the GPU, but kept until the next call."""

    def compute(tensors: Mapping[str, torch.Tensor]) -> None:
        tensors["out0"].copy_(tensors["in0"].expand(tensors["out0"].shape))

    sizes = Tensor(DataType.INT64, TensorLocation.HOST)
    engine = Engine({"in0": Tensor(), "in1": sizes, "out0": Tensor()}, lambda *_: (3, 2), compute)
    place = Cpu()
    runner = runner_of(engine, "in0", "in1", place=place)
    (found,) = runner.run([torch.ones(1, 2), torch.tensor([3, 2])])
    assert found.shape == (3, 2)
    assert [shape for shape, _ in place.held] == [(1, 2)]
    (thread,) = runner._threads.values()
    assert [one.tolist() for one in thread.kept] == [[3, 2]]


def test_an_output_on_the_host_is_waited_for() -> None:
    """What TensorRT writes on the CPU is there when the call returns."""
    place = Cpu()
    runner = runner_of(doubling(out0=Tensor(location=TensorLocation.HOST)), place=place)
    runner.run([torch.ones(2)])
    assert place.current.synchronized == 1


def test_an_output_in_an_inputs_memory_leaves_the_callers_tensor_alone() -> None:
    """Where TensorRT wants both at one address, that is a copy of the input."""
    engine, given = doubling(out0=Tensor(alias="in0")), empty((2,), torch.float32, "cpu").fill_(1)
    (found,) = runner_of(engine).run([given])
    (context,) = engine.contexts
    assert context.addresses["in0"] == context.addresses["out0"] != address(given)
    assert (found.tolist(), given.tolist()) == ([2, 2], [1, 1])


def test_sizes_that_depend_on_values_are_refused() -> None:
    """TensorRT does not know them before the call, and the runner says that it does not do that."""
    engine = Engine({"in0": Tensor(), "out0": Tensor()}, lambda *_: (-1, 2), lambda _: None)
    with pytest.raises(RunError, match="out0 depend on values"):
        runner_of(engine).run([torch.ones(2)])


def test_another_dtype_is_refused() -> None:
    """Memory is not read as what it is not."""
    with pytest.raises(RunError, match=r"in0 is torch.float32, not torch.float64"):
        runner_of(doubling()).run([torch.ones(2, dtype=torch.float64)])


def test_sizes_that_tensorrt_cannot_infer_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises what says nothing of a plan, and the runner says what it is about."""

    def failing(_: Context) -> list[str]:
        raise RuntimeError("reshape would change volume")

    monkeypatch.setattr(Context, "infer_shapes", failing)
    with pytest.raises(RunError, match="sizes do not fit each other: reshape"):
        runner_of(doubling()).run([torch.ones(2)])
    monkeypatch.setattr(Context, "infer_shapes", lambda _: ["in0"])
    with pytest.raises(RunError, match="the sizes of these are unknown: in0"):
        runner_of(doubling()).run([torch.ones(2)])


def test_no_memory_for_a_context_is_an_error() -> None:
    """TensorRT returns none instead of raising."""
    engine = doubling()
    engine.memory = False
    with pytest.raises(RunError, match="no memory for a context"):
        runner_of(engine).run([torch.ones(2)])


@pytest.mark.parametrize("names", [("in1",), ("in0", "out0")], ids=["unknown", "missing"])
def test_an_engine_with_other_names_is_refused(names: tuple[str, ...]) -> None:
    """What is stored beside a plan has to be the plan's own."""
    engine = doubling() if names == ("in1",) else Engine({"in0": Tensor()}, lambda *_: (), lambda _: None)
    with pytest.raises(IncompatibleEngineError, match="other inputs or outputs"):
        runner_of(engine, *names)


def test_a_dtype_that_torch_has_not_is_refused() -> None:
    """An input of four bits is an error when the plan is loaded."""
    with pytest.raises(IncompatibleEngineError, match=r"in0 is DataType\.INT4"):
        runner_of(doubling(in0=Tensor(DataType.INT4)))


def test_dtypes_are_those_of_the_real_bindings() -> None:
    """Each dtype that a plan can have at its border has torch's of the same size."""
    trt = TENSORRT_RTX.load()
    found = dtypes_of(trt)
    assert {int(kind.itemsize) for kind in found} == {one.itemsize for one in found.values()}
    assert all(kind.itemsize == one.itemsize for kind, one in found.items())


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_memory_lies_where_tensorrt_takes_it(shape: tuple[int, ...]) -> None:
    """Addresses are multiples of 256 and never null, and a tensor that lies right is not copied."""
    for dtype in (torch.float32, torch.bool, torch.int64):
        made = empty(shape, dtype, "cpu")
        assert (made.shape, made.dtype, address(made) % 256) == (torch.Size(shape), dtype, 0)
        assert address(made) != 0
    if made.numel():
        assert place_tensor(made, "cpu", private=False).data_ptr() == made.data_ptr()
        assert place_tensor(made, "cpu", private=True).data_ptr() != made.data_ptr()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_real_plan_is_not_loaded_without_a_gpu(engines: Path) -> None:
    """TensorRT-RTX's own runtime is asked: it allows no host code, and its no is told in words."""
    plan = _plan(engines)
    with pytest.raises(NoDeviceError, match=r"cannot run it: it gave no reason; .*CUDA driver version"):
        deserialize(TENSORRT_RTX.load(), TENSORRT_RTX, plan)
    with pytest.raises(IncompatibleEngineError, match="finds it invalid: malformed engine"):
        deserialize(TENSORRT_RTX.load(), TENSORRT_RTX, b"x" * 2000)


def _plan(engines: Path) -> Any:
    import trtcache

    module = compiled(torch.nn.ReLU(), (torch.ones(2, 2),), engines)
    entry = trtcache.Cache(engines).get(module.report.partitions[0].key)
    assert entry is not None
    return entry.read("engine")
