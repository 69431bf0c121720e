"""Traces: what they distinguish, what a replay leaves behind, and which programs have the operations of a model."""

from __future__ import annotations

import copy
import functools
import gc
import json
import sys
import threading
import warnings
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim
from torch.utils import _pytree as pytree

import trtcache
from trtcache.frontends.direct import NotComparableError
from trtcache.frontends.direct import manifest as manifests
from trtcache.frontends.direct.manifest import Manifest
from trtcache.frontends.direct.program_trace import normalize, perform_same_operations, record_symbolic, trace_program
from trtcache.frontends.direct.replay import replay
from trtcache.frontends.direct.trace import Recording, Trace, record
from trtcache.lowering.capture import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.arange(12.0).reshape(3, 4)


class Does(nn.Module):
    """Does what a function does."""

    def __init__(self, does: Callable[..., Any]) -> None:
        super().__init__()
        self.does = does
        self.lin = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor) -> Any:
        return self.does(self, x)


def trace_of(does: Callable[..., Any]) -> Trace:
    """Return the trace of a model."""
    return record(Does(does).eval(), (X,), {}).trace


def stored(recording: Recording, trace: Trace | None = None) -> Manifest:
    """Return the manifest of a recording, as it is read from an entry."""
    manifest = Manifest(trace or recording.trace, [sorted(recording.code.digests)], ["0" * 64, 1], "cpu")
    return manifests.read(manifests.write([manifest], {})[manifests.MEMBER])[0]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "a layer": lambda model, x: model.lin(x),
    "gradients disabled inside": lambda model, x: _without_grad(model, x),
    "a buffer that is written to": lambda model, x: x + model.count.add_(1),
    "a buffer that is assigned": lambda model, x: _assigns(model, x),
    "an unused result": lambda model, x: (model.lin(x), x)[1] * 2,
    "a constant": lambda model, x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "the version of a weight": lambda model, x: x * (2 + model.lin.weight._version),
    "a block that a profiler shows": lambda model, x: _profiled(model, x) * 2,
    "a weight twice in autocast": lambda model, x: _autocast_twice(model, x),
    "a list of results": lambda model, x: list(x.split(2, dim=1)),
    "a dict with an int": lambda model, x: {"x": x.relu(), "n": 3, "none": None},
    "an input that is returned": lambda model, x: (x, x.t(), x),
    "random numbers": lambda model, x: nn.functional.dropout(x, 0.5, training=True),
    "autocast": lambda model, x: _autocast(model, x),
    "a view that is written to": lambda model, x: _view(x),
    "attention": lambda model, x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "dropout of a slice, which an export copies": lambda model, x: nn.functional.dropout(x[:, 0], 0.5, False) + 1,
    "dropout of an expanded tensor, without gradients": lambda model, x: _dropout_without_grad(x),
    "dropout of a tensor with a dimension of one": lambda model, x: nn.functional.dropout(x[:, None], 0.5, False) + 1,
    "strides of single elements that an export computes otherwise": lambda model, x: nn.functional.group_norm(
        x.view(1, X.numel(), 1, 1).to(memory_format=torch.channels_last), 1
    ),
    "a transpose in place": lambda model, x: x.clone().t_() @ x,
}


def _without_grad(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = model.lin(x)
    return y * x


def _dropout_without_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = nn.functional.dropout(x[:, None].expand(-1, 2, -1), 0.5, False)
    return y + x.sum()


def _assigns(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.count = model.count + 1
    return x + model.count


def _profiled(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.profiler.record_function("a block"):
        return model.lin(x)  # type: ignore[no-any-return]  # a tensor


def _autocast_twice(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model.lin(x) + model.lin(x * 2)  # type: ignore[no-any-return]  # a tensor


def _autocast(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model.lin(x)  # type: ignore[no-any-return]  # a tensor


def _view(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:].mul_(2)
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_exported_program_performs_the_operations_of_its_model(name: str) -> None:
    """And a replay of the trace finds it, also after a round trip through JSON; no other program's."""
    model = Does(PROGRAMS[name]).eval()
    recording = record(model, (X,), {})
    trace, program = recording.trace, export(model, (X,), {}, None)
    for results in (recording.results, None):  # computed or known
        assert perform_same_operations(trace, trace_program(program, recording.mode, recording.inputs, results))
    others = [stored(record(Does(does).eval(), (X,), {})) for other, does in PROGRAMS.items() if other != name]
    found = replay(model, (X,), {}, [*others, stored(recording)])
    assert (found.place, found.difference) == (len(others), "")
    missed = replay(model, (X,), {}, others)
    assert missed.place is None
    assert missed.difference


DIFFERENT: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "True and 1": (lambda _, x: x.sum(1, keepdim=True), lambda _, x: x.sum(1, keepdim=False)),
    "1 and 1.0": (lambda _, x: x + 1, lambda _, x: x + 1.0),
    "0.0 and -0.0": (lambda _, x: x * 0.0, lambda _, x: x * -0.0),
    "a number and NaN": (lambda _, x: x * 1.0, lambda _, x: x * float("nan")),
    "two constants": (lambda _, x: x + torch.tensor([1.0]), lambda _, x: x + torch.tensor([2.0])),
    "two dtypes": (lambda _, x: x.to(torch.float16), lambda _, x: x.to(torch.bfloat16)),
    "the order of operands": (lambda _, x: x - x.exp(), lambda _, x: x.exp() - x),
    "the order of results": (lambda _, x: (x.exp(), x.sin()), lambda _, x: (x.sin(), x.exp())),
    "the structure of results": (lambda _, x: (x.exp(),), lambda _, x: [x.exp()]),
    "a copy": (lambda _, x: x, lambda _, x: x.clone()),
    "an unused draw": (lambda _, x: x + 1, lambda _, x: (torch.rand(3), x + 1)[1]),
    "a write that nothing reads": (lambda _, x: x + 1, lambda model, x: (model.count.add_(1), x + 1)[1]),
    "equal keys of a dict": (lambda _, x: {1: x.exp()}, lambda _, x: {True: x.exp()}),
    "a buffer that is assigned to itself": (lambda _, x: x.exp(), lambda model, x: _keeps(model, x)),
    "a weight and a buffer": (lambda model, x: x + model.lin.bias, lambda model, x: x + model.count),
}


def _keeps(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.count = model.count
    return x.exp()


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_operations_have_another_trace(name: str) -> None:
    """Also without what an export may add or leave out."""
    one, other = (json.dumps(trace_of(does)) for does in DIFFERENT[name])
    assert one != other
    if name != "a buffer that is assigned to itself":  # of which a program has nothing
        assert normalize(json.loads(one)) != normalize(json.loads(other))


def _state(model: nn.Module) -> list[Any]:
    return [
        [(name, id(value)) for name, value in module.__dict__.items() if not isinstance(value, dict)]
        + [(name, list(map(id, value.values()))) for name, value in module.__dict__.items() if isinstance(value, dict)]
        for module in model.modules()
    ]


TABLE: dict[str, torch.Tensor] = {}


@functools.lru_cache
def _cached(size: int) -> torch.Tensor:
    return torch.arange(float(size))


def _leaves_traces(model: Any, x: torch.Tensor) -> torch.Tensor:
    model.calls.append(1)
    model.count = model.count + 1
    model.kept = x * 2
    TABLE["x"] = x
    return model.lin(x) + _cached(4) + model.kept


@pytest.mark.parametrize("is_found", [True, False])
@pytest.mark.filterwarnings("default")  # as errors, they turn direct mode off
def test_a_replay_leaves_the_model_as_it_was(is_found: bool) -> None:
    """Attributes, buffers, lists, and caches around it; also if it ends in the middle."""
    TABLE.clear()
    model = Does(_leaves_traces)
    manifest = stored(record(model, (X,), {}))
    if not is_found:
        manifest.trace[-2][1] = ["l"]
    before, values = _state(model), copy.deepcopy(model.state_dict())
    assert (replay(model, (X,), {}, [manifest]).place is not None) == is_found
    assert _state(model) == before
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    assert not TABLE
    assert not isinstance(_cached(4), FakeTensor)
    assert torch.compiler.is_exporting() is False
    assert torch.equal(model(X), model.lin(X) + _cached(4) + X * 2)


def test_a_cache_of_parametrizations_has_no_fake_weights(interpreter: str, tmp_path: Path) -> None:
    """Nor after an export; the model could not be called in the block."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
    model = Does(PROGRAMS["a layer"]).eval()
    nn.utils.parametrizations.weight_norm(model.lin)
    for outcome in ("miss", "hit"):
        with nn.utils.parametrize.cached():
            module = trtcache.compile(model, (X,), **options)
            assert module.report.direct.partition(":")[0] == outcome
            assert torch.allclose(module(X), model(X))


def _catches(model: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        return x * 3 if model.calls else x * 2
    except BaseException:  # noqa: BLE001  # code that should not
        return x * 2
    finally:
        x + 1  # an operation while the replay ends


def test_code_runs_to_its_end_after_a_difference() -> None:
    """The first difference is remembered, and nothing is raised that code could catch."""
    model = Does(_catches)
    manifest = stored(record(model, (X,), {}))
    model.calls.append(1)
    found = replay(model, (X,), {}, [manifest])
    assert found.place is None
    assert found.difference.endswith("aten.mul.Tensor(input 0, 2) -> aten.mul.Tensor(input 0, 3)")


def _fast(model: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 5 if TABLE else x
    TABLE["is fast"] = x  # without try and finally: an exception would leave it
    y = y * len(model.calls)
    del TABLE["is fast"]
    return y


def test_code_that_restores_what_it_changes_does_so_after_a_difference(interpreter: str, tmp_path: Path) -> None:
    """The export that follows sees what it would have seen."""
    TABLE.clear()
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
    model = Does(_fast)
    trtcache.compile(model, (X,), **options)
    model.calls += [1, 1]
    module = trtcache.compile(model, (X,), **options)
    assert module.report.direct.startswith("miss: operation 1 ")
    assert torch.equal(module(X), X * 2)
    assert not TABLE


def _switches(model: Any, x: torch.Tensor) -> torch.Tensor:
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    return model.lin(x)  # type: ignore[no-any-return]  # a tensor


def test_settings_that_forward_changes_are_restored(interpreter: str, tmp_path: Path) -> None:
    """As an export restores them."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
    filters = list(warnings.filters)
    for outcome in ("miss", "hit"):
        report = trtcache.compile(Does(_switches).eval(), (X,), **options).report
        assert report.direct.partition(":")[0] == outcome
        assert torch.is_grad_enabled()
        assert warnings.filters == filters


def test_a_signal_that_ends_the_process_does_so_in_a_replay(interpreter: str, tmp_path: Path) -> None:
    """A handler calls ``sys.exit``; an export would not go on either."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
    model = Does(lambda model, x: sys.exit(7) if model.calls else x * 2).eval()
    trtcache.compile(model, (X,), **options)
    model.calls.append(1)
    with pytest.raises(SystemExit):
        trtcache.compile(model, (X,), **options)
    assert torch.compiler.is_exporting() is False


@pytest.mark.parametrize("is_found", [True, False])
def test_weights_are_freed_after_a_replay(is_found: bool) -> None:
    """Fake tensors lead to their mode, and that to the tensors with names: Python frees no such cycle."""
    model = Does(PROGRAMS["a layer"] if is_found else PROGRAMS["a constant"])
    manifest = stored(record(Does(PROGRAMS["a layer"]).eval(), (X,), {}))
    assert (replay(model, (X,), {}, [manifest]).place is not None) == is_found
    weight = weakref.ref(model.lin.weight)
    del model
    gc.collect()
    assert weight() is None


def test_a_hit_has_the_weights_that_a_hook_of_the_state_sets(interpreter: str, tmp_path: Path) -> None:
    """torch.export calls ``state_dict`` first."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
    for outcome in ("miss", "hit"):
        model = Does(PROGRAMS["a layer"]).eval()
        merged = nn.Parameter(torch.rand(4, 4))
        model.lin.register_state_dict_pre_hook(lambda lin, *_, merged=merged: setattr(lin, "weight", merged))
        module = trtcache.compile(model, (X,), **options)
        assert module.report.direct.partition(":")[0] == outcome
        assert torch.equal(module(X), model(X))
        assert model.lin.weight is merged


def test_names_of_weights_are_not_those_of_inputs() -> None:
    """A buffer can have any name without a dot."""
    model = Does(lambda model, x: x * 2 + model.get_buffer("input 0"))
    model.register_buffer("input 0", torch.zeros(3, 4))
    manifest = stored(record(model, (X,), {}))
    model.does = lambda _, x: x * 2 + x
    assert replay(model, (X,), {}, [manifest]).place is None


def test_a_constant_in_the_memory_of_a_weight_has_no_trace() -> None:
    """The program has the weight in place of it, so that a refit reaches it."""
    model = Does(lambda model, x: x * model.kept[0])
    model.kept = [model.lin.weight.detach()[:1]]  # type: ignore[assignment]  # any attribute
    with pytest.raises(NotComparableError, match="shares memory with a weight"):
        record(model, (X,), {})


class _Pair:
    """Two tensors, of which unflattening makes a third."""

    def __init__(self, one: torch.Tensor, other: torch.Tensor) -> None:
        self.one, self.other = one, other
        self.both = torch.cat([one, other])


pytree.register_pytree_node(
    _Pair,
    lambda pair: ([pair.one, pair.other], None),
    lambda leaves, _: _Pair(*leaves),
    flatten_with_keys_fn=lambda pair: ([(pytree.GetAttrKey(n), getattr(pair, n)) for n in ("one", "other")], None),
    serialized_type_name="tests.direct.Pair",
)


def test_operators_that_make_an_argument_are_in_a_trace() -> None:
    """The key-value caches of transformers call them when an argument is unflattened."""
    model, pair = Does(lambda _, x: x.both * 2), _Pair(X, X + 1)
    found = record(model, (pair,), {})
    assert [line[0] for line in found.trace] == ["aten.cat.default", "aten.mul.Tensor", "results"]
    program = export(model, (pair,), {}, None)
    assert perform_same_operations(found.trace, trace_program(program, found.mode, found.inputs, found.results))


def test_other_strides_in_an_export_have_no_trace() -> None:
    """Code could ask for them. Those of single elements may differ: code that asks for these turns direct mode off."""
    model = Does(lambda _, x: x[:, None] * 2)
    found, program = record(model, (X,), {}), export(model, (X,), {}, None)
    (product,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    value = product.meta["val"]
    for strides, has_trace in ((value.stride(), True), ((4, 1, 1), True), ((1, 12, 3), False)):
        product.meta["val"] = value.new_empty_strided(value.shape, strides)
        if has_trace:
            assert trace_program(program, found.mode, found.inputs, found.results)
            continue
        with pytest.raises(NotComparableError, match=r"a result of aten\.mul\.Tensor has other strides in an export"):
            trace_program(program, found.mode, found.inputs, found.results)


def test_numbers_of_constants_are_those_of_an_export() -> None:
    """The operations that use them have them."""
    model = Does(lambda model, x: x[: int(model.kept[0])] * model.kept[1].item())
    model.kept = [torch.tensor(2), torch.tensor(3.0)]  # type: ignore[assignment]  # any attribute
    manifest = stored(record(model, (X,), {}))
    assert replay(model, (X,), {}, [manifest]).place == 0
    model.kept[1] = torch.tensor(4.0)  # type: ignore[index]
    assert replay(model, (X,), {}, [manifest]).place is None


def test_exchanging_tensors_is_an_error_as_in_an_export() -> None:
    """The names of tensors are kept by weak references, which torch refuses to leave behind."""
    model = Does(lambda _, x: torch.utils.swap_tensors(x * 2, x * 3))
    with pytest.raises(RuntimeError, match="weakref"):
        record(model, (X,), {})


def _resizes(_: Any, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty(0)
    torch.mul(x, 2, out=y)
    return y * len(y)


def _promotes(_: Any, x: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        return x * torch.ones(4)
    finally:
        torch.set_default_dtype(torch.float32)


NOT_COMPARABLE: dict[str, Callable[..., Any]] = {
    "changes the sizes of an argument": _resizes,
    "changes the default dtype": _promotes,
}


@pytest.mark.parametrize("why", NOT_COMPARABLE)
def test_what_changes_results_without_an_argument_has_no_trace(why: str) -> None:
    """A replay has the sizes and dtypes of results from the trace."""
    with pytest.raises(NotComparableError, match=why):
        trace_of(NOT_COMPARABLE[why])


def test_views_share_memory_in_a_replay() -> None:
    """So code of torch that looks at it takes the same path."""

    def does(_: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.view(-1)
        with torch._C.DisableTorchFunction():  # or direct mode would be off
            return y * (2 if y.untyped_storage()._cdata == x.untyped_storage()._cdata else 3)

    model = Does(does)
    manifest = stored(record(model, (X,), {}))
    assert replay(model, (X,), {}, [manifest]).place == 0
    assert manifest.trace[-2][1][2] == 2


def test_threads_can_replay_one_model(interpreter: str, tmp_path: Path) -> None:
    """One after the other."""
    model, answers = Does(PROGRAMS["a layer"]).eval(), list[str]()
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
    trtcache.compile(model, (X,), **options)

    def compile_again() -> None:
        answers.append(trtcache.compile(model, (X,), **options).report.direct)

    threads = [threading.Thread(target=compile_again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["hit"] * 4


class Branches(nn.Module):
    """Multiplies large batches, or those of values."""

    def __init__(self, limit: int, by: float = 2.0) -> None:
        super().__init__()
        self.limit, self.by = limit, by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by if x.shape[0] > self.limit else x + 1


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: Dim("n", max=90)}},
        {"x": {0: Dim.AUTO}},
        {"x": {0: Dim.DYNAMIC}},
        OrderedDict(x=OrderedDict({0: Dim.AUTO})),
    ],
)
def test_guards_of_dynamic_sizes_count(shapes: Any, interpreter: str, tmp_path: Path) -> None:
    """The operations for the example are the same; those for other sizes are not."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}

    def outcome(model: nn.Module, shapes: Any = shapes) -> str:
        return trtcache.compile(model, (X,), dynamic_shapes=shapes, **options).report.direct

    assert [outcome(model) for model in (Branches(100), Branches(100))] == ["miss: no matching manifest", "hit"]
    assert "guards of sizes" in outcome(Branches(95))
    assert outcome(Branches(100)) == "hit"
    assert outcome(Branches(100), None).startswith("miss: ")
    assert not [name for name in vars(X) if name.startswith("_dynamo")]


class Two(nn.Module):
    """Has two inputs, with sizes that only ``dynamic_shapes`` relates."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum(0) + y.sum(0)


@pytest.mark.parametrize("rows", [(N := Dim("n"), N), (N, 2 * N), (N + 1, N)])
def test_sizes_that_dynamic_shapes_relates_hit(rows: tuple[Any, Any], interpreter: str, tmp_path: Path) -> None:
    """torch.export makes them equal after it has traced the model."""
    sizes = {str(N): 6, str(2 * N): 12, str(N + 1): 7}
    args = tuple(torch.rand(sizes[str(one)], 4) for one in rows)
    options: dict[str, Any] = {"dynamic_shapes": tuple({0: one} for one in rows), "direct": "on"}
    options |= {"backend": interpreter, "cache": tmp_path / "cache"}
    assert [trtcache.compile(Two(), args, **options).report.direct.split(":")[0] for _ in range(2)] == ["miss", "hit"]


@pytest.mark.parametrize(
    "does",
    [
        lambda _, x: x[: int(x.shape[0] * 0.5)],
        lambda _, x: x * (x.shape[0] * 0.1),
        lambda _, x: x * 2 if x.shape[0] * 0.3 < 5.1 else x,
        lambda _, x: x * (x.shape[0] / 3 + x.shape[0] / 3),
    ],
)
def test_floats_of_symbolic_sizes_have_no_trace(does: Callable[..., Any]) -> None:
    """SymPy folds their constants, and does not keep the order of operations."""
    with pytest.raises(NotComparableError, match="floats from symbolic sizes"):
        record_symbolic(Does(does), (X.repeat(4, 1),), {}, ({0: Dim.DYNAMIC},), is_whole=False)


@pytest.mark.parametrize(
    "does", [lambda _, x: x / x.shape[0], lambda _, x: x * (1 / x.shape[0]), lambda _, x: x * x[0, 0].item()]
)
def test_numbers_that_are_rounded_once_have_a_trace(does: Callable[..., Any]) -> None:
    """Their terms have all that the program computes."""
    assert record_symbolic(Does(does), (X.repeat(4, 1),), {}, ({0: Dim.DYNAMIC},), is_whole=False).trace


class Selects(nn.Module):
    """Has sizes that depend on values."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 2].sum() * self.by


def test_a_padded_size_stays_a_symbol(interpreter: str, tmp_path: Path) -> None:
    """As in an export, which uses torch's functions in Python."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
    options["dynamic_shapes"] = {"x": {0: Dim("n", min=2, max=64)}}

    def does(model: Any, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (0, 0, 1, 1))
        return padded.sum(0) / (5 if model.calls else padded.shape[0])

    model = Does(does).eval()
    outcomes = [trtcache.compile(model, (X,), **options).report.direct.partition(":")[0] for _ in range(2)]
    assert outcomes == ["miss", "hit"]
    model.calls.append(1)
    module = trtcache.compile(model, (X,), **options)
    assert module.report.direct.startswith("miss: operation 3: ")
    assert torch.equal(module(X[:2]), model(X[:2]))


def test_sizes_that_depend_on_values_are_symbols(interpreter: str, tmp_path: Path) -> None:
    """They are compared at a hit like dynamic ones."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache"}
    seen = [trtcache.compile(Selects(by), (X,), direct="on", **options).report.direct for by in (1, 1, 2, 2)]
    assert [one.split(":")[0] for one in seen] == ["miss", "hit", "miss", "hit"]
    assert trtcache.compile(Selects(2), (X,), direct="verify", **options).report.direct == "verified"
