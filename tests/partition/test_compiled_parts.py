"""Programs in parts answer as eager torch does, are refitted, and share their engines."""

from __future__ import annotations

import copy
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import trtcache
from tests.models import Calls
from tests.partition.parts import BATCH, SOFTMAX, Attention, Twice, double, dynamic, fill, inputs
from trtcache.compiler import build as building
from trtcache.errors import BuildError, BuildForbiddenError, ExportError, GuardError, PartitionError
from trtcache.testing.interpreter import Interpretation, Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 8)


def compiled(
    model: nn.Module, args: tuple[Any, ...], backend: str, cache: Path, **more: Any
) -> trtcache.CompiledModule:
    """Compile into a cache of the test's own."""
    return trtcache.compile(model, args, backend=backend, cache=cache, **more)


@pytest.mark.parametrize(
    "settings",
    [SOFTMAX, {"torch_executed_ops": ["aten.linear"]}, {"torch_executed_modules": ["out"]}, {"min_block_size": 99}],
    ids=["softmax", "linear", "module", "everything"],
)
def test_sizes_vary_across_cuts(interpreter: str, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Every size in the range is answered, whatever is in torch."""
    model = Attention()
    module = compiled(model, inputs(3), interpreter, tmp_path, settings=settings, dynamic_shapes=dynamic())
    for batch in (2, 7):
        given = inputs(batch)
        torch.testing.assert_close(module(*given), model(*given))


@pytest.mark.parametrize("step", [2, 3])
def test_a_cut_through_a_rounded_size(step: int, interpreter: str, tmp_path: Path) -> None:
    """An engine after a slice with a step has an input whose size does not determine that of the program's input."""
    model = Calls(lambda _, x: torch.relu(x[:, ::step] * 2) + 1)
    sizes = (({0: Dim.AUTO, 1: Dim.AUTO},),)
    settings = {"torch_executed_ops": ["aten.relu"]}
    module = compiled(model, (X,), interpreter, tmp_path, settings=settings, dynamic_shapes=sizes)
    for columns in (5, 8, 9, 31):
        given = torch.randn(4, columns)
        torch.testing.assert_close(module(given), model(given))


@pytest.mark.parametrize("settings", [{"torch_executed_ops": ["aten.cumsum"]}])
def test_operators_with_arguments_left_out(settings: dict[str, Any], interpreter: str, tmp_path: Path) -> None:
    """Those that the exported program leaves out because they are defaults."""
    model = Calls(lambda _, x, n: (torch.repeat_interleave(torch.arange(x.shape[0]), n), n.cumsum(0)))
    given = (X, torch.tensor([2, 4, 1]))
    sizes = (({0: Dim.AUTO}, {0: Dim.AUTO}),)
    module = compiled(model, given, interpreter, tmp_path, settings=settings, dynamic_shapes=sizes)
    torch.testing.assert_close(module(*given), model(*given))


class Flattened(nn.Module):
    """A cut through a tensor of which a size is a product, and an engine after it that needs the factors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        made = double(x.exp().reshape(batch * length, width))
        return made.reshape(length, batch, width) * batch + length


def test_an_engine_is_given_sizes_that_none_of_its_tensors_has(interpreter: str, tmp_path: Path) -> None:
    """Both factors of a product reach the engine, whatever they are."""
    sizes = {0: Dim("batch", min=2, max=9), 1: Dim("length", min=2, max=9)}
    module = compiled(Flattened(), (torch.randn(3, 4, 8),), interpreter, tmp_path, dynamic_shapes=(sizes,))
    assert len(module.report.partitions) == 2
    for shape in ((3, 4, 8), (2, 6, 8), (7, 7, 8)):
        given = torch.randn(shape)
        torch.testing.assert_close(module(given), Flattened()(given))


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_the_default_dtype_does_not_matter(interpreter: str, tmp_path: Path, default: torch.dtype) -> None:
    """A size that an engine takes as a tensor has the dtype of the program, in calls and in an export."""
    sizes = {0: Dim("batch", min=2, max=9), 1: Dim("length", min=2, max=9)}
    module = compiled(Flattened(), (torch.randn(3, 4, 8),), interpreter, tmp_path, dynamic_shapes=(sizes,))
    given = torch.randn(2, 6, 8)
    expected = Flattened()(given)
    torch.set_default_dtype(default)
    try:
        torch.testing.assert_close(module(given), expected)
        trtcache.export(module, tmp_path / "flattened.pt2")
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(trtcache.load(tmp_path / "flattened.pt2", trust="local-file")(given), expected)


@pytest.mark.parametrize("settings", [SOFTMAX, {"torch_executed_modules": ["out"]}], ids=["softmax", "module"])
def test_parts_answer_as_one_engine_under_autocast(interpreter: str, tmp_path: Path, settings: dict[str, Any]) -> None:
    """A program has the casts with which it was exported, in torch too."""
    model, given = Attention(), inputs(3)
    module = compiled(model, given, interpreter, tmp_path, settings=settings)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(*given)
        assert torch.is_autocast_enabled("cpu")
    torch.testing.assert_close(found, model(*given))


def test_sizes_that_an_engine_refuses_are_not_taken(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine after a cut is asked too: the sizes of its inputs follow from those of the program's."""
    module = compiled(Attention(), inputs(3), interpreter, tmp_path, settings=SOFTMAX, dynamic_shapes=dynamic())
    assert module.takes(*inputs(7))
    asked: list[list[tuple[int, ...]]] = []

    def check_sizes(_: object, given: list[torch.Tensor]) -> None:
        asked.append([tuple(one.shape) for one in given])
        if len(asked) == len(module.report.partitions):
            raise GuardError("sizes", "another size", "this one", "")

    monkeypatch.setattr(Interpretation, "check_sizes", check_sizes, raising=False)
    assert not module.takes(*inputs(7))
    assert len(asked) == len(module.report.partitions) > 1
    assert all(7 in shapes[0] for shapes in asked)


def test_a_refit_reaches_every_part(interpreter: str, tmp_path: Path) -> None:
    """Also the weights of what is in torch; and another module of the same engines keeps its own."""
    model, other = Attention(), Attention()
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn_like(weight))
    settings = {"torch_executed_modules": ["out"]}
    module, given = compiled(model, inputs(3), interpreter, tmp_path, settings=settings), inputs(3)
    second = module.with_weights(other.state_dict())
    torch.testing.assert_close(second(*given), other(*given))
    torch.testing.assert_close(module(*given), model(*given))
    assert module.refit(other, verify=True).weights == 6
    torch.testing.assert_close(module(*given), other(*given))


def test_two_models_share_the_engine_of_their_backbone(interpreter: str, tmp_path: Path) -> None:
    """The second builds its head only."""

    class Headed(Twice):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.second = nn.Linear(8, size)

    outcomes = [
        [one.outcome for one in compiled(Headed(size), (X,), interpreter, tmp_path).report.partitions]
        for size in (8, 4)
    ]
    assert outcomes == [["built", "built"], ["hit", "built"]]


def test_the_report_says_what_is_in_torch_and_why(interpreter: str, tmp_path: Path) -> None:
    """By operator, module and reason; printed it is a line for each kind."""
    report = compiled(Twice(), (X,), interpreter, tmp_path).report
    (left,) = report.left
    assert left.operator == "trtcache_parts.double.default"
    assert "in torch: 1 x trtcache_parts.double.default (custom operator trtcache_parts::double" in str(report)


class Counting(nn.Module):
    """Buffers that a call changes on both sides of a cut, and that it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("past", torch.zeros(8))
        self.lin = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        before = self.past.clone()
        self.count += 1
        made = double(self.lin(x) + self.count)
        self.past.copy_(made[0])
        self.count += 1
        return made + self.past + self.count, before, self.past.view(2, 4)


def test_buffers_are_changed_after_all_that_reads_them(interpreter: str, tmp_path: Path) -> None:
    """Each call sees what the one before it left, and results lie in no buffer's memory."""
    model = Counting()
    module = compiled(copy.deepcopy(model), (X,), interpreter, tmp_path)
    kept = []
    for _ in range(3):
        given = torch.randn(3, 8)
        with torch.no_grad():
            expected = [one.clone() for one in model(given)]
        kept.append((expected, module(given)))
    for expected, found in kept:
        torch.testing.assert_close(list(found), expected)


def test_threads_that_call_a_module_lose_no_change_of_its_buffers(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of several threads, of runners and of a copy with the same engine run one after the other."""
    module = compiled(Counting(), (X,), interpreter, tmp_path)
    run = Interpretation.run
    monkeypatch.setattr(Interpretation, "run", lambda *args: [time.sleep(0.001), run(*args)][1])
    with module.runners(4, intra=1) as runners, ThreadPoolExecutor(4) as threads:
        assert "calls change the module's buffers" in str(runners.report)
        list(runners.map([X] * 20))
        list(threads.map(copy.copy(module), [X] * 20))
    assert module.count.item() == 80


class Changing(nn.Module):
    """An input that a call changes, and a custom operator that changes what it is given."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = x.exp()
        fill(made, 3.0)
        y.add_(made)
        return made + x, y


def test_changed_inputs_and_operators_with_effects_are_the_models(interpreter: str, tmp_path: Path) -> None:
    """New contents are in the caller's tensor after the call."""
    module = compiled(Changing(), (X.clone(), X.clone()), interpreter, tmp_path)
    given, ours = torch.randn(3, 8), torch.randn(3, 8)
    theirs = ours.clone()
    torch.testing.assert_close(module(given, ours), Changing()(given, theirs))
    torch.testing.assert_close(ours, theirs)


class Last(nn.Module):
    """A buffer that is filled from an input, which the call may then change, and is returned."""

    def __init__(self, *, clears: bool) -> None:
        super().__init__()
        self.clears = clears
        self.register_buffer("last", torch.zeros(3, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the buffer, a view of it, and what keeps the program in parts."""
        self.last.copy_(x)
        made = double(x)
        if self.clears:
            x.zero_()
        return self.last, self.last.view(-1), made + 1


@pytest.mark.parametrize("clears", [True, False])
def test_a_buffer_that_is_filled_from_an_input_is_not_the_input(
    interpreter: str, tmp_path: Path, *, clears: bool
) -> None:
    """Results have the old content of the input, and keep it when the caller writes to the input again."""
    module, model = compiled(Last(clears=clears), (X.clone(),), interpreter, tmp_path), Last(clears=clears)
    given, theirs = X.clone(), X.clone()
    found, expected = module(given), model(theirs)
    torch.testing.assert_close(given, theirs)
    given.fill_(9)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(module.state_dict()["last"], model.last)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.group_norm(x.transpose(1, 2), 2),
        lambda x: nn.functional.group_norm(x.transpose(1, 2).contiguous().relu(), 2),
        lambda x: nn.functional.group_norm(x.transpose(1, 2).contiguous().view(2, 4, 6, 1), 2),
        lambda x: torch.pdist(x[0].t()),
    ],
    ids=["its own copy", "the model's copy", "a view of a copy", "pdist"],
)
@pytest.mark.parametrize(
    "given", [torch.randn(2, 6, 4), torch.randn(2, 4, 6).transpose(1, 2)], ids=["dense", "strided"]
)
def test_kernels_of_torch_have_the_layout_that_they_require(
    interpreter: str, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor
) -> None:
    """Copies that only change a layout are removed, and kernels that refuse another layout run all the same."""
    module = compiled(Calls(lambda _, x: function(x)), (given,), interpreter, tmp_path, settings={"min_block_size": 99})
    torch.testing.assert_close(module(given), function(given))


class Shown(nn.Module):
    """Results that are an input, a weight, a view of an input, and a constant; sizes that depend on values."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.table = torch.arange(4.0)

    def forward(self, x: torch.Tensor, flags: torch.Tensor) -> tuple[Any, ...]:
        kept = double(x)[flags.nonzero().squeeze(1)]
        return x, self.lin.weight, x.t(), self.table, kept.sum(0) + self.lin.bias, None, 3


def test_all_kinds_of_results_are_returned(interpreter: str, tmp_path: Path) -> None:
    """What depends on values stays in torch, and its neighbours do not."""
    model, flags = Shown(), torch.tensor([True, False, True])
    module = compiled(model, (X, flags), interpreter, tmp_path)
    other = torch.tensor([True, True, True])
    for one in (flags, other):
        with torch.no_grad():
            torch.testing.assert_close(module(X, one), model(X, one))


class Constants(nn.Module):
    """Results that do not depend on the inputs, two of them equal."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.arange(4.0), persistent=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return constants, a view of one, and a computed tensor."""
        return torch.eye(4), torch.eye(4), torch.ones(4, 4).tril()[1:], self.places.clone() + 0, double(x) + 1


@pytest.mark.parametrize("settings", [{}, {"torch_executed_ops": ["aten.add"]}], ids=["parts", "more in torch"])
def test_a_write_to_a_result_does_not_change_a_constant(
    interpreter: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Each call returns them anew."""
    module = compiled(Constants(), (X,), interpreter, tmp_path, settings=settings)
    assert module.report.left
    for _ in range(2):
        found = module(X)
        torch.testing.assert_close(found, Constants()(X))
        for place, one in enumerate(found):
            one.fill_(place + 7)
        assert [float(one.min()) for one in found] == [7, 8, 9, 10, 11]


def test_a_part_that_cannot_be_built_may_stay_in_torch(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By default it is an error; where the settings let it, a warning and the report say so."""
    build = Interpreter.build

    def failing(self: Interpreter, program: Any, *rest: Any) -> Any:
        if any("tanh" in node.name for node in program.order):
            raise BuildError("interpreter", "no tanh")
        return build(self, program, *rest)

    monkeypatch.setattr(Interpreter, "build", failing)
    with pytest.raises(BuildError, match="no tanh"):
        compiled(Twice(), (X,), interpreter, tmp_path)
    with caplog.at_level(logging.WARNING):
        module = compiled(Twice(), (X,), interpreter, tmp_path, settings={"on_build_failure": "torch"})
    assert "stays in torch, since its engine could not be built" in caplog.text
    assert [one.outcome for one in module.report.partitions] == ["hit"]
    assert "its engine could not be built: building interpreter failed: no tanh" in {
        one.why for one in module.report.left
    }
    torch.testing.assert_close(module(X), Twice()(X))
    whole = compiled(nn.Tanh(), (X,), interpreter, tmp_path, settings={"on_build_failure": "torch"})
    torch.testing.assert_close(whole(X), X.tanh())
    assert whole.report.partitions == []


def test_forbidden_builds_are_errors_all_the_same(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part may stay in torch where its build fails, not where builds are forbidden."""
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    with pytest.raises(BuildForbiddenError):
        compiled(Twice(), (X,), interpreter, tmp_path, settings={"on_build_failure": "torch"})


def test_tracers_see_one_operator(interpreter: str, tmp_path: Path) -> None:
    """A module in parts is exported as one call of an engine."""
    module = compiled(Twice(), (X,), interpreter, tmp_path)

    class Around(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = module(x) + 1
            return made

    program = torch.export.export(Around(), (X,))
    assert sum("execute_engine" in str(node.target) for node in program.graph.nodes) == 1
    torch.testing.assert_close(program.module()(X), Twice()(X) + 1)


def test_a_file_is_compiled_in_parts(interpreter: str, tmp_path: Path) -> None:
    """There is no alias of it, and its engines are hits all the same."""
    model = Attention()
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, inputs(3)), path)
    for outcome in ("built", "hit"):
        module = trtcache.compile(path, backend=interpreter, cache=tmp_path / "c", settings=SOFTMAX)
        assert [one.outcome for one in module.report.partitions] == [outcome] * 2
        assert module.report.route == "lowered"
    given = inputs(3)
    torch.testing.assert_close(module(*given), model(*given))
    assert trtcache.compile(path, backend=interpreter, cache=tmp_path / "c").report.route == "lowered"


def test_build_puts_every_engine_into_the_cache(interpreter: str, tmp_path: Path) -> None:
    """One file takes one engine, so an output is refused."""
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Twice(), (X,)), path)
    report = building.build(path, backend=interpreter, cache=tmp_path / "c")
    assert [one.outcome for one in report.partitions] == ["built"] * 2
    assert [one.outcome for one in compiled(Twice(), (X,), interpreter, tmp_path / "c").report.partitions] == [
        "hit"
    ] * 2
    with pytest.raises(PartitionError, match="an output file holds one engine"):
        building.build(path, backend=interpreter, cache=tmp_path / "c", output=tmp_path / "engine")


class Scaled(nn.Module):
    """An operator takes a number of sizes that is no whole one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = x.shape[0] / 3
        return double(x.exp() * factor) * factor


def test_a_size_that_no_call_can_tell_is_an_error_that_says_what_to_do(interpreter: str, tmp_path: Path) -> None:
    """Where that size is fixed there is nothing to tell."""
    mul = {"torch_executed_ops": ["aten.mul"]}
    with pytest.raises(ExportError, match=r"cannot be computed from .*; compute with whole numbers"):
        compiled(Scaled(), (X,), interpreter, tmp_path, settings=mul, dynamic_shapes=({0: BATCH},))
    torch.testing.assert_close(compiled(Scaled(), (X,), interpreter, tmp_path, settings=mul)(X), Scaled()(X))
