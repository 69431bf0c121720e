"""The operator that tracers see instead of an engine."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

import trtcache
from tests import models
from tests.comparing import difference
from tests.models import Affine, Calls, KeyValue
from trtcache.errors import CanonicalizationError, IncompatibleEngineError, InputError
from trtcache.runtime.operator import NAME, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunPython

X = torch.randn(3, 4)
BATCH = torch.export.Dim("batch", min=2, max=64)
CASES = ("complex", "constants_out", "empty", "input_out", "keywords", "no_inputs", "no_outputs", "values_in")
EXECUTE = torch.ops.trtcache.execute_engine.default


class Wrapped(nn.Module):
    """A user's model with an engine in it."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> Any:
        first, *rest = args
        return pytree.tree_map(lambda one: one + 1, self.inner(first * 2, *rest))


class Sized(nn.Module):
    """Outputs whose sizes are expressions of the inputs' sizes, and of other layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        made = self.lin(x)
        return {"turned": made.relu().t(), "both": (torch.cat([made, y, y]), made.sum()), "flat": made.flatten()}


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(model: nn.Module, args: tuple[Any, ...], **options: Any) -> trtcache.CompiledModule:
        return trtcache.compile(model.eval(), args, cache=engines, **{"backend": interpreter, **options})

    return compile_


@pytest.fixture
def sized(compiled: Callable[..., trtcache.CompiledModule]) -> tuple[Sized, trtcache.CompiledModule]:
    """A model whose first size varies, from 2 to 64, and its engine."""
    model = Sized()
    return model, compiled(model, rows(5), dynamic_shapes={"x": {0: BATCH}, "y": {0: BATCH}})


def rows(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs of so many rows."""
    return torch.randn(number, 4), torch.randn(number, 3)


def calls_of(graph: torch.fx.Graph) -> list[str]:
    """Return the names of the functions that a graph calls."""
    return [node.target.__name__ for node in graph.nodes if node.op == "call_function"]


@pytest.mark.slow
@pytest.mark.no_cover  # torch's tracers, traced, take twice as long
def test_a_model_with_an_engine_in_it_is_exported(engines: Path) -> None:
    """The program has the engine as one node, answers as the model does, and its results have no gradient."""
    model = Affine()
    wrapped = Wrapped(trtcache.compile(model, (X,), cache=engines))
    program = torch.export.export(wrapped, (X.clone().requires_grad_(),))
    assert calls_of(program.graph).count("execute_engine.default") == 1
    found = program.module()(X)
    assert difference(Wrapped(model)(X), found) is None
    assert not any(one.requires_grad for one in found)
    wrapped.inner.refit(Affine(2.0))
    assert difference(Wrapped(Affine(2.0))(X), program.module()(X)) is None


@pytest.mark.parametrize("strict", [True, False])
def test_sizes_that_vary_stay_so_in_an_export(sized: tuple[Sized, trtcache.CompiledModule], strict: bool) -> None:
    """One program answers every size, and its outputs' sizes are expressions of it."""
    model, engine = sized
    shapes = {"args": ({0: BATCH}, {0: BATCH})}
    program = torch.export.export(Wrapped(engine), rows(5), dynamic_shapes=shapes, strict=strict)
    for number in (2, 9, 64):
        args = rows(number)
        assert difference(Wrapped(model)(*args), program.module()(*args)) is None


def test_a_range_that_an_engine_lacks_is_told_while_exporting(sized: tuple[Sized, trtcache.CompiledModule]) -> None:
    """A program that would take more rows than its engine is refused with the number."""
    many = torch.export.Dim("many", min=2, max=100)
    with pytest.raises(Exception, match="64"):
        torch.export.export(Wrapped(sized[1]), rows(5), dynamic_shapes={"args": ({0: many}, {0: many})})


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_dynamo_sees_one_operator(sized: tuple[Sized, trtcache.CompiledModule], backend: str) -> None:
    """There is no break in the graph, and a second size makes the first and only graph of sizes that vary."""
    torch._dynamo.reset()
    model, engine = sized
    counter = CompileCounterWithBackend(backend)
    wrapped = torch.compile(Wrapped(engine), backend=counter, fullgraph=True)
    for number in (5, 7, 9, 11):
        args = rows(number)
        assert difference(Wrapped(model)(*args), wrapped(*args)) is None
    assert counter.frame_count == 2
    assert all(calls_of(graph.graph).count("execute_engine") == 1 for graph in counter.graphs)


@pytest.mark.parametrize("name", CASES)
def test_fake_results_are_as_real_ones(compiled: Callable[..., trtcache.CompiledModule], name: str) -> None:
    """Dtype, shape, strides and device of every output are known without a run, and what is no tensor is as it was."""
    case = models.cases()[name]
    engine = compiled(case.model, case.args, kwargs=case.kwargs)
    assert engine._module_call.operator is not None
    mode = FakeTensorMode()
    fake = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (case.args, case.kwargs))
    with mode:
        found = pytree.tree_leaves(engine(*fake[0], **fake[1]))
    real = pytree.tree_leaves(engine(*case.args, **case.kwargs))
    for one, other in zip(found, real, strict=True):
        if isinstance(other, torch.Tensor):
            assert (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
            assert one.stride() == other.stride() or name == "complex"  # a view with gaps
        else:
            assert one == other


def test_fake_tensors_need_no_mode(sized: tuple[Sized, trtcache.CompiledModule]) -> None:
    """A call with fake tensors alone goes the same way."""
    mode = FakeTensorMode()
    fake = [mode.from_tensor(one) for one in rows(6)]
    assert sized[1](*fake)["both"][0].shape == (18, 3)


def test_strides_of_dimensions_of_one_element_are_as_promised(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """What torch.compile made around an engine asserts those of the fake implementation."""
    module = compiled(Calls(lambda _, x: (x * 2).permute(0, 3, 1, 2)), (torch.randn(3, 6, 7, 1),))
    call, x = module._module_call.operator, torch.randn(3, 6, 7, 1)
    assert call is not None
    mode = FakeTensorMode()
    with mode:
        (fake,) = call([mode.from_tensor(x)])
    (made,) = call([x])
    assert made.stride() == fake.stride()


def test_fake_tensors_are_checked(sized: tuple[Sized, trtcache.CompiledModule]) -> None:
    """Another dtype, rank or fixed size is an InputError that says which input of the engine it is."""
    mode = FakeTensorMode()
    x, y = map(mode.from_tensor, rows(6))
    for args, message in (((x.double(), y), "input 0 .* got float64"), ((x, y[:, :2]), "input 1"), ((x, y[0]), "of 1")):
        with pytest.raises(InputError, match=message), mode:
            sized[1](*args)


def test_the_operator_keeps_its_promises(sized: tuple[Sized, trtcache.CompiledModule]) -> None:
    """Torch's own checks of an operator pass: schema, gradients, fake against real, and under AOTAutograd."""
    call = sized[1]._module_call.operator
    assert call is not None
    found = torch.library.opcheck(EXECUTE, ([*rows(5)], [], call.handle, "", "", call.input_spec, call.output_spec))
    assert set(found.values()) == {"SUCCESS"}


def test_outputs_have_memory_of_their_own(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """An engine that answers with its input, or twice with one tensor, gives the operator copies."""
    model = models.Calls(lambda lin, x: (x, made := lin(x), made))
    engine = compiled(model, (X,))
    found = engine._module_call.execute([X])
    assert len({one.untyped_storage().data_ptr() for one in (X, *found)}) == 4
    assert difference([X, model.lin(X), model.lin(X)], found) is None


def test_torch_compile_does_not_write_into_weights(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Inductor reuses the memory of an operator's outputs, so one that is a weight is copied, after a refit too."""
    model, other = (models.Calls(lambda lin, x: (lin.weight, lin(x))) for _ in range(2))
    engine = compiled(model, (X,))
    around = torch.compile(lambda x: (engine(x)[0] * 2 + 1).relu())
    for used in (model, other):
        engine.refit(used.state_dict())
        before = used.lin.weight.detach().clone()
        with torch.no_grad():
            for _ in range(2):
                assert torch.equal(around(X), (before * 2 + 1).relu())
        assert torch.equal(used.lin.weight, before)


def test_inputs_that_calls_change_are_changed_in_a_traced_program(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """The new contents are an output of the operator, and the program copies them back."""
    engine = compiled(models.Calls(lambda lin, x: lin(x.add_(1))), (X.clone(),))
    x = X.clone()
    program = torch.export.export(models.Calls(lambda lin, x: engine(x)), (X.clone(),))
    program.module()(x)
    assert torch.equal(x, X + 1)


def test_a_module_whose_calls_change_weights_is_no_operator(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """No tracer would know of the change, so fake tensors are refused as before."""
    engine = compiled(KeyValue(), (torch.randn(3, 4), torch.arange(3)))
    assert engine._module_call.operator is None
    with pytest.raises(InputError, match=r"outside of torch.jit.trace, got one that is traced; .* trace the model"):
        torch.jit.trace(engine, (torch.randn(3, 4), torch.arange(3)))


def test_torch_jit_trace_records_the_operator(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Not the answer of the example; other sizes are refused."""
    model = models.Calls(lambda lin, x: lin(x).relu())
    engine = compiled(model, (X,))
    around = nn.Sequential(engine, nn.Sigmoid())
    traced = torch.jit.trace(around, (X,))
    torch.testing.assert_close(traced(X + 1), model(X + 1).sigmoid().detach())
    with pytest.raises(RuntimeError, match="shape"):
        traced(torch.randn(7, 4))


def test_a_handle_dies_with_its_engine(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A program that outlives its engine says so, and never runs another one."""
    wrapped = Wrapped(compiled(Affine(), (X,)))
    program = torch.export.export(wrapped, (X,))
    del wrapped
    gc.collect()
    with pytest.raises(IncompatibleEngineError, match="keep the compiled module"):
        program.module()(X)


def test_a_copy_with_other_weights_has_a_handle_of_its_own(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A trace of one of two modules of an engine runs that one's weights."""
    first = compiled(Affine(), (X,))
    second = first.with_weights(Affine(2.0).state_dict())
    assert difference(Affine(2.0)(X), torch.compile(second, backend="eager", fullgraph=True)(X)) is None
    assert difference(Affine()(X), torch.compile(first, backend="eager", fullgraph=True)(X)) is None


def test_a_model_with_an_engine_in_it_has_no_key(
    compiled: Callable[..., trtcache.CompiledModule], interpreter: str
) -> None:
    """An engine's handle is of this process, whatever version a caller declares for the operator."""
    wrapped = Wrapped(compiled(Affine(), (X,)))
    for settings in ({}, {"operator_versions": {"trtcache::execute_engine": "1"}}):
        with pytest.raises(CanonicalizationError, match="an engine of this process"):
            trtcache.key(wrapped, (X,), backend=interpreter, settings=settings)


def test_a_saved_program_opens_without_trtcache(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, run_python: RunPython
) -> None:
    """One line that declares the schema is enough, in a process that has torch alone."""
    torch.export.save(torch.export.export(Wrapped(compiled(Affine(), (X,))), (X,)), tmp_path / "program.pt2")
    done = run_python(f"""
        import sys, torch
        torch.library.define({NAME!r}, {SCHEMA!r})
        program = torch.export.load({str(tmp_path / "program.pt2")!r})
        assert "trtcache.execute_engine.default" in str(program.graph)
        import trtcache.runtime.operator  # afterwards it is declared already, and still gets its implementation
        try:
            program.module()({torch.zeros(3, 4).tolist()!r} and torch.zeros(3, 4))
        except Exception as error:
            print(error)
    """)
    assert "this process has no engine with that handle" in done.stdout, done.stderr
