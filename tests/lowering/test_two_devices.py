"""Programs on two devices, and exports and compilations in threads that end."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from trtcache.errors import ExportError
from trtcache.lowering.devices import move_weights
from trtcache.lowering.interface import Result
from trtcache.weights.recipes import WeightRef
from trtcache.weights.slots import EngineWeight, Slot

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten

_THREADS = """
import threading

def run(number):
    import torch, trtcache
    from trtcache.integrations import torch_compile

    model, x = torch.nn.Linear(4, number), torch.randn(2, 4)
    trtcache.lower(model, (x,))
    with torch.no_grad():
        print(tuple(torch.compile(model, backend="eager")(x).shape))

for number in (3, 4):
    thread = threading.Thread(target=run, args=(number,))
    thread.start()
    thread.join()
"""


@pytest.mark.slow
def test_threads_that_export_may_end() -> None:
    """With torch 2.11 for CUDA the second one crashed the process where there is no GPU."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split("\n")) == (0, ["(2, 3)", "(2, 4)", ""]), done.stderr


def _graph(build: Callable[[fx.Graph], list[fx.Node]]) -> fx.GraphModule:
    """Return a lowered graph of a program for a GPU, whose weight ``w`` and constant are on the CPU."""
    graph = fx.Graph()
    graph.output(build(graph))
    graph.output_node().meta["roles"] = tuple(Result("result") for _ in graph.output_node().args[0])  # type: ignore[union-attr]
    return fx.GraphModule({"constant_0": torch.tensor([0, 2])}, graph)


def _call(graph: fx.Graph, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    node = graph.call_function(target, args, kwargs)
    values = fx.node.map_arg((args, kwargs), lambda one: one.meta["val"])
    node.meta["val"] = target(*values[0], **values[1])
    return node


def _weight(graph: fx.Graph, value: torch.Tensor) -> fx.Node:
    node = graph.placeholder("w")
    node.meta |= {"weight": "w", "val": value}
    return node


def _input(graph: fx.Graph) -> fx.Node:
    node = graph.placeholder("x")
    node.meta |= {"input": 0, "val": torch.empty(7, 5, device="cuda")}
    return node


def test_weights_on_the_cpu_move_to_the_gpu() -> None:
    """A scalar beside a tensor of the GPU is used there; what runs on the CPU gets a copy."""
    with FakeTensorMode():

        def build(graph: fx.Graph) -> list[fx.Node]:
            w, x = _weight(graph, torch.empty(())), _input(graph)
            return [_call(graph, aten.mul.Tensor, x, w), _call(graph, aten.neg.default, w), w]

        module = _graph(build)
        move_weights(module, "M")
    module.graph.lint()
    w = module.graph.find_nodes(op="placeholder")[0]
    assert w.meta["val"].device.type == "cuda"
    product, negated, returned = module.graph.output_node().args[0]  # type: ignore[misc]
    assert product.args[1] is w
    assert negated.args[0] is returned
    assert (returned.target, returned.kwargs) == (aten._to_copy.default, {"device": torch.device("cpu")})
    assert returned.meta["val"].device.type == negated.meta["val"].device.type == "cpu"
    assert ["torch_executed" in node.meta for node in (product, returned, negated)] == [False, True, True]


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_weight_that_is_copied_to_the_gpu_is_there(is_copied: bool) -> None:
    """Its copy takes the weight on the GPU. An operator that may need its argument on the CPU gets it there."""
    with FakeTensorMode():

        def build(graph: fx.Graph) -> list[fx.Node]:
            w, x = _weight(graph, torch.empty(5)), _input(graph)
            if is_copied:
                return [
                    _call(
                        graph, aten.add.Tensor, x, _call(graph, aten._to_copy.default, w, device=torch.device("cuda"))
                    )
                ]
            return [x, _call(graph, aten.new_zeros.default, w, [3], device=torch.device("cuda"))]

        module = _graph(build)
        move_weights(module, "M")
    calls = module.graph.find_nodes(op="call_function", target=aten._to_copy.default)
    assert [one.kwargs["device"].type for one in calls] == (["cuda"] if is_copied else ["cpu"])


def test_a_program_for_the_cpu_is_left_alone() -> None:
    """Nothing changes without a tensor on a GPU."""
    with FakeTensorMode():
        module = _graph(lambda graph: [_call(graph, aten.neg.default, _weight(graph, torch.empty(5)))])
        before = str(module.graph)
        move_weights(module, "M")
    assert str(module.graph) == before


def test_a_buffer_on_the_cpu_that_calls_change_is_refused() -> None:
    """The engine's copy on the GPU would keep its first value."""
    with FakeTensorMode():

        def build(graph: fx.Graph) -> list[fx.Node]:
            w, x = _weight(graph, torch.empty(())), _input(graph)
            return [_call(graph, aten.mul.Tensor, x, w), _call(graph, aten.add.Tensor, w, 1)]

        module = _graph(build)
        module.graph.output_node().meta["roles"] = (Result("result"), Result("weight", "w"))
        with pytest.raises(ExportError, match=r"its buffer w is on cpu, and a call changes it: move it to cuda:0"):
            move_weights(module, "M")


def test_a_weight_on_another_device_is_no_slot() -> None:
    """It is computed from its slot by a copy, so that the model's tensor stays where it is."""
    slot = Slot(0, "float32", (2,), (1,), "cpu", ("w",))
    assert EngineWeight(0, WeightRef(0), "float32", (2,), (1,), "cpu", (slot,)).slot is slot
    assert EngineWeight(0, WeightRef(0), "float32", (2,), (1,), "cuda", (slot,)).slot is None
