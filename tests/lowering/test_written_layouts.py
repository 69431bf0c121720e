"""A write behind ``contiguous`` or ``reshape`` changes what it changes in eager torch, for each layout of an input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import trtcache
from tests.comparing import difference
from tests.models import Calls
from trtcache.errors import GuardError
from trtcache.lowering import lower
from trtcache.lowering.capture import export
from trtcache.lowering.trial_runs import layout_dependent_inputs
from trtcache.runtime.checks import CallCheck
from trtcache.runtime.executable import _tensor_input

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def contiguous(_: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Write to the result of ``contiguous``."""
    y = x.contiguous()
    y.add_(1)
    return y * 1, x * 2


def reshaped(_: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Write to a flat tensor."""
    y = x.reshape(-1)
    y.add_(1)
    return y * 1, x * 2


def written_before(_: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Read a flat tensor after its input was written to."""
    y = x.flatten()
    x.mul_(3)
    return y * 1, x * 2


def intermediate(_: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Write to the flat form of a result that has the layout of the input."""
    y = x * 2
    y.contiguous().view(-1).add_(1)
    return (y * 1,)


def branching(_: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Copy in Python code."""
    if not x.is_contiguous():
        x = x.clone()
    return (x.mul_(2) * 1,)


WRITING = [contiguous, reshaped, written_before, intermediate]


def example() -> torch.Tensor:
    """A dense example."""
    return torch.arange(24.0).view(4, 6)


def like(layout: str) -> torch.Tensor:
    """The same values in another layout."""
    if layout == "transposed":
        return example().t().contiguous().t()
    wide = torch.zeros(4, 8)
    wide[:, :6] = example()
    return wide[:, :6]


def assert_same(call: Callable[..., Any], function: Callable[..., Any], x: torch.Tensor, kept: torch.Tensor) -> None:
    """Compare results, and what both calls leave in their inputs: equal tensors with the same strides."""
    expected = function(None, x)
    assert difference(expected, call(kept)) is None
    assert torch.equal(kept, x)


@pytest.mark.parametrize("function", [*WRITING, branching])
@pytest.mark.parametrize("layout", ["transposed", "gapped"])
def test_the_layout_of_the_example(function: Callable[..., Any], layout: str, compiled: Callable[..., Any]) -> None:
    """A call in the layout of the example answers as eager torch, and leaves in its input what that leaves."""
    module = compiled(Calls(function), (like(layout),))
    assert_same(module, function, like(layout), like(layout))


@pytest.mark.parametrize("function", WRITING)
@pytest.mark.parametrize("sizes", [None, ((({0: Dim.AUTO},)),)], ids=["fixed", "dynamic"])
def test_another_layout_is_refused(function: Callable[..., Any], sizes: Any, compiled: Callable[..., Any]) -> None:
    """A copy in the example's layout would be changed, or not, unlike the caller's tensor."""
    module = compiled(Calls(function), (example(),), dynamic_shapes=sizes)
    assert_same(module, function, example(), example())
    kept = like("transposed")
    with pytest.raises(GuardError, match=r"expected strides \(6, 1\), for which .*, got strides \(1, 4\)"):
        module(kept)
    assert torch.equal(kept, example())


@pytest.mark.parametrize("policy", ["eager", "compile"])
@pytest.mark.parametrize("layout", ["transposed", "gapped"])
def test_on_guard_answers_it(policy: str, layout: str, compiled: Callable[..., Any]) -> None:
    """The layout is a condition like one on sizes: torch answers, or another program."""
    module = compiled(Calls(contiguous), (example(),), on_guard=policy)
    assert_same(module, contiguous, like(layout), like(layout))
    assert_same(module, contiguous, like(layout), like(layout))
    assert_same(module, contiguous, example(), example())
    assert len(module.report.programs) == (policy == "compile")


def test_a_size_of_one_has_any_stride(compiled: Callable[..., Any]) -> None:
    """The stride of a dimension with one element says nothing about the layout."""
    module = compiled(Calls(contiguous), (torch.ones(1, 4),))
    assert_same(module, contiguous, torch.ones(1, 4), torch.ones(4).as_strided((1, 4), (9, 1)))


@pytest.mark.parametrize(
    "function",
    [
        lambda lin, x: lin(x).reshape(-1).relu_(),  # the tensor before is not used again
        lambda _, x: x.reshape(-1) + x.mul(2).relu_().view(-1),
        lambda _, x: x.contiguous() * 2,
        lambda _, x: (x.add_(1), x.reshape(-1) * 2)[1],  # written before
    ],
)
def test_other_programs_take_any_layout(function: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    """If no write depends on a layout, inputs are copied into that of the example as before."""
    model, x = Calls(function), torch.randn(4, 4)
    module = compiled(model, (x.clone(),))
    assert not any(one.fixed_layout for one in module._interface.inputs)
    assert difference(model(x.clone()), module(x.t().contiguous().t())) is None


def test_an_example_with_gaps_has_the_key_of_a_dense_one(interpreter: str) -> None:
    """It is made contiguous unless the program writes to it, so that a slice of a batch hits."""
    x = torch.randn(4, 8)[:, ::2]
    for model in (Calls(lambda lin, x: lin(x).relu_()), Calls(lambda lin, x: lin(x.contiguous()).contiguous())):
        dense, gapped = (trtcache.key(model, (one,), backend=interpreter) for one in (x.contiguous(), x))
        assert dense == gapped
    writing = Calls(contiguous)
    assert trtcache.key(writing, (x,), backend=interpreter) != trtcache.key(
        writing, (x.contiguous(),), backend=interpreter
    )


def test_torch_compile_has_the_layout_of_each_call(interpreter: str) -> None:
    """Dynamo compiles a graph for each layout."""
    function = torch.compile(
        lambda x: contiguous(nn.Identity(), x), backend="trtcache", options={"backend": interpreter}
    )
    for make in (example, lambda: like("gapped"), lambda: like("transposed")):
        assert_same(function, contiguous, make(), make())


def test_an_engine_reads_gaps(tmp_path: Path) -> None:
    """AOTInductor compiles for the strides of an example with gaps."""
    model = Calls(contiguous)
    module = trtcache.compile(model, (like("gapped"),), backend="aot_inductor", cache=tmp_path)
    assert_same(module, contiguous, like("gapped"), like("gapped"))


def test_a_saved_program_has_the_condition(tmp_path: Path) -> None:
    """A worker that builds it, or a later rebuild, finds the same: ``contiguous`` without effect is in the graph."""
    program = export(Calls(contiguous), (example(),), {}, None)
    torch.export.save(program, tmp_path / "program.pt2")
    assert layout_dependent_inputs(torch.export.load(tmp_path / "program.pt2")) == {0}


def test_the_condition_is_stored() -> None:
    """An artifact has it, and so do checks without torch."""
    (spec,) = lower(Calls(reshaped), (example(),)).interface.inputs
    assert spec.fixed_layout
    assert _tensor_input(spec.document()) == spec
    (other,) = lower(Calls(lambda lin, x: lin(x)), (torch.randn(4, 4),)).interface.inputs
    assert "fixed_layout" not in other.document()
    check = CallCheck(lower(Calls(reshaped), (example(),)).interface, "argument {}".format)
    check.check_layout(other, (1, 4), (4, 1))
    with pytest.raises(GuardError, match=r"argument 0: expected strides \(6, 1\)"):
        check.check_layout(spec, (1, 4), (6, 1))
