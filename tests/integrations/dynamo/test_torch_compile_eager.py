"""What ``torch.compile`` leaves to eager torch, what it refuses, and what its options say."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.testing._internal.two_tensor import TwoTensor

from tests.comparing import difference
from trtcache.errors import (
    BackendUnavailableError,
    BuildError,
    BuildForbiddenError,
    GuardError,
    SettingsError,
    TrainingError,
)
from trtcache.integrations import torch_compile
from trtcache.integrations.torch_compile import Options
from trtcache.testing.interpreter import Interpretation, Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.integrations.dynamo.conftest import CompileModel, Made


@torch.library.custom_op("trtcache_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """Return the double, which no key can tell."""
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage() for one in caplog.records if one.levelno == logging.WARNING and one.name.startswith("trtcache")
    ]


def _cause(failed: pytest.ExceptionInfo[BackendCompilerFailed]) -> BaseException:
    return failed.value.inner_exception


def test_training_goes_on_in_eager_torch(compile_model: CompileModel, caplog: pytest.LogCaptureFixture) -> None:
    """With gradients to come a model trains as without us, and one warning says what to do for inference."""
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    compiled = compile_model(model)
    for rows in (3, 5):
        compiled(torch.randn(rows, 4)).sum().backward()
    assert model.weight.grad is not None
    (warning,) = _warnings(caplog)
    assert "1 of its results require gradients" in warning
    assert "torch.inference_mode()" in warning
    with torch.no_grad():
        assert difference(model(x), compiled(x)) is None
    assert [len(report.engines) for report in torch_compile.reports()] == [0, 0, 1]


def test_training_can_be_allowed(compile_model: CompileModel, caplog: pytest.LogCaptureFixture) -> None:
    """With ``training="eager"`` nothing is warned of; the report says it."""
    compile_model(nn.Linear(4, 4), training="eager")(torch.randn(3, 4)).sum().backward()
    assert _warnings(caplog) == []
    (report,) = torch_compile.reports()
    assert report.eager == ["1 of its results require gradients"]


def test_training_can_be_refused(compile_model: CompileModel) -> None:
    """With ``training="error"`` a graph for training is an error that says what to do."""
    with pytest.raises(BackendCompilerFailed, match=r"options=\{'training': 'eager'\}") as failed:
        compile_model(nn.Linear(4, 4), training="error")(torch.randn(3, 4))
    assert isinstance(_cause(failed), TrainingError)


def test_a_graph_that_makes_its_argument_require_gradients_is_for_training(compile_model: CompileModel) -> None:
    """An argument that is multiplied by a parameter in place gets its gradient."""
    weight, x = nn.Parameter(torch.ones(3)), torch.ones(3)

    def scale(x: torch.Tensor) -> torch.Tensor:
        x.mul_(weight)
        return x.detach()

    compile_model(scale)(x)
    assert x.requires_grad
    (report,) = torch_compile.reports()
    assert "it makes 1 of its arguments require gradients" in report.eager[0]


@torch.no_grad()
def test_a_graph_that_switches_gradients_on_is_for_training(compile_model: CompileModel) -> None:
    """Guidance by gradients works where the caller has switched them off."""
    weight, x = nn.Parameter(torch.ones(3)), torch.randn(3)

    def guided(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            made = (x * weight).sum()
        torch._dynamo.graph_break()
        return torch.autograd.grad(made, weight)[0]

    assert torch.equal(compile_model(guided)(x), x)


@pytest.mark.parametrize(
    "program",
    [
        torch.no_grad()(lambda model, x: model(x)),
        lambda model, x: model(x).argmax(-1),
        lambda model, x: x * 2,
    ],
)
def test_parameters_alone_are_no_training(
    compile_model: CompileModel, made: Made, program: Callable[..., torch.Tensor]
) -> None:
    """Where no result can have gradients there is an engine, though the model's parameters require them."""
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    assert difference(program(model, x), compile_model(lambda x: program(model, x))(x)) is None
    assert made() == [(1, 1)]


def test_what_no_engine_takes_runs_in_eager_torch(
    compile_model: CompileModel, caplog: pytest.LogCaptureFixture
) -> None:
    """A graph that cannot be lowered runs as it is, with one warning that says why."""
    compiled, x = compile_model(_branches), torch.randn(3)
    for _ in range(2):
        assert difference(_branches(x), compiled(x)) is None
    (warning,) = _warnings(caplog)
    assert "control flow" in warning
    assert "\n" not in warning
    (report,) = torch_compile.reports()
    assert report.engines == []
    assert str(report).endswith(f"  eager: {report.eager[0]}")


def test_an_operator_that_is_not_declared_runs_between_engines(compile_model: CompileModel, made: Made) -> None:
    """What is before and after it is compiled, and it is in the report."""
    compiled = compile_model(lambda x: twice(x.exp()) + 1)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).exp() * 2 + 1)
    assert made() == [(1, 1)]
    (report,) = torch_compile.reports()
    assert len(report.engines[0].partitions) == 2
    assert [one.operator for one in report.engines[0].left] == ["trtcache_tests.twice.default"]


def test_a_declared_operator_has_an_engine(compile_model: CompileModel, made: Made) -> None:
    """The options are those of ``Settings``: with a version a custom operator is cached."""
    compiled = compile_model(lambda x: twice(x) + 1, operator_versions={"trtcache_tests": "1"})
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    assert made() == [(1, 1)]


def test_a_call_that_an_engine_refuses_runs_in_eager_torch(
    compile_model: CompileModel, caplog: pytest.LogCaptureFixture
) -> None:
    """Arguments in one memory, of which one is changed, are what no engine can be given."""
    memory, twin = torch.ones(6), torch.ones(6)

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    assert torch.equal(add(twin[1:], twin[:5]), compile_model(add)(memory[1:], memory[:5]))
    assert torch.equal(memory, twin)
    (warning,) = _warnings(caplog)
    assert "memory of its own" in warning


@torch.no_grad()
def test_an_engine_for_some_sizes_only_is_one_warning(
    compile_model: CompileModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A builder can fix a size that varies: calls of all others run in eager torch, for the same reason."""
    run = Interpretation.run

    def fixed(engine: Interpretation, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if (rows := inputs[0].shape[0]) != 3:
            raise GuardError("sizes", "x.shape[0] == 3", f"x.shape[0] is {rows}", "compile with such inputs")
        return run(engine, inputs)

    monkeypatch.setattr(Interpretation, "run", fixed)
    compiled = compile_model(torch.cos, dynamic=True)
    for rows in (3, 4, 5, 3):
        x = torch.randn(rows, 4)
        assert difference(x.cos(), compiled(x)) is None
    (warning,) = _warnings(caplog)
    assert "compiled for x.shape[0] == 3; torch.compile(dynamic=False) has one for each size" in warning


def test_a_call_that_an_engine_refuses_runs_once(compile_model: CompileModel) -> None:
    """Where a result is a view of a changed argument, one that lies otherwise is refused before it is changed."""

    def add(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        return x[1:], x.sum()

    compiled = compile_model(add, guard_filter_fn=lambda guards: [False for _ in guards])
    for make in (lambda: torch.zeros(3, 4), lambda: torch.zeros(4, 3).t()):
        ours, theirs = make(), make()
        assert difference(add(theirs), compiled(ours)) is None
        assert torch.equal(ours, theirs)
    (report,) = torch_compile.reports()
    assert report.eager == ["argument 0: expected strides (4, 1), got (1, 3)"]


def _apart(memory: torch.Tensor) -> torch.Tensor:
    return torch.ones(2)


def _in_a_weight(memory: torch.Tensor) -> torch.Tensor:
    return memory[2:4]


def _in_itself(memory: torch.Tensor) -> torch.Tensor:
    return memory[:1].expand(2)


@torch.no_grad()
@pytest.mark.parametrize("argument", [_in_a_weight, _in_itself])
def test_an_argument_is_changed_where_it_lies(
    compile_model: CompileModel, argument: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """One in the memory of a weight, or with elements that share memory, is changed as in eager torch."""
    weight, twin = nn.Parameter(torch.ones(6)), torch.ones(6)

    def add(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return weight * x.sum()

    compiled = compile_model(add)
    for find in (_apart, argument):
        assert difference(add(find(twin), twin), compiled(find(weight.data), weight)) is None
        assert torch.equal(twin, weight)
    assert len([why for one in torch_compile.reports() for why in one.eager]) == 1


def test_weights_that_are_several_tensors_run_in_eager_torch(compile_model: CompileModel) -> None:
    """A subclass that has tensors in it, such as a quantised weight, is nothing that an engine reads."""
    weight, x = nn.Parameter(TwoTensor(torch.ones(3, 3), torch.ones(3, 3)), requires_grad=False), torch.randn(2, 3)
    result = compile_model(lambda x: x @ weight)(x)
    assert isinstance(result, TwoTensor)
    assert torch.equal(result.a, x @ weight.a)


@pytest.mark.parametrize("program", [nn.Linear(3, 3), _branches, lambda x: x + 1])
def test_nothing_runs_without_an_engine_where_builds_are_forbidden(
    compile_model: CompileModel, monkeypatch: pytest.MonkeyPatch, program: Callable[..., Any]
) -> None:
    """With ``TRTCACHE_FORBID_BUILD=1`` training, what no engine takes, and a miss are errors."""
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    with pytest.raises(BackendCompilerFailed, match="TRTCACHE_FORBID_BUILD=1") as failed:
        compile_model(program)(torch.ones(3))
    assert isinstance(_cause(failed), BuildForbiddenError)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"trainin": "eager"}, SettingsError, r"options\['trainin'\]: unknown; did you mean 'training'\?"),
        ({"inductr": {}}, SettingsError, r"options\['inductr'\]: unknown; did you mean 'inductor'\?"),
        ({"training": "eagr"}, SettingsError, r"options\['training'\]: 'eagr': unknown; did you mean 'eager'\?"),
        ({"name": 5}, SettingsError, r"options\['name'\]: expected a string, got 5"),
        ({"backend": None}, SettingsError, "backend: expected a string such as 'aot_inductor', got None"),
        ({"backend": "aot_inducter"}, BackendUnavailableError, "did you mean 'aot_inductor'"),
        ({"backend": "aot_inductor", "inductor": {"max_autotun": 1}}, SettingsError, "did you mean 'max_autotune'"),
    ],
)
def test_a_mistake_is_an_error(
    compile_model: CompileModel, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """What a user asked for by a name that there is not is an error, never eager torch."""
    with pytest.raises(BackendCompilerFailed, match=message) as failed:
        compile_model(lambda x: x + 1, **options)(torch.ones(3))
    assert isinstance(_cause(failed), kind)


class Broken(nn.Module):
    """A model of two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(x).softmax(-1)
        torch._dynamo.graph_break()
        return x.exp()


def test_what_stays_in_torch_may_be_in_another_graph(
    compile_model: CompileModel, caplog: pytest.LogCaptureFixture
) -> None:
    """Modules are named by their paths in the model; a graph that has nothing of a name says so, and is compiled."""
    model, x = Broken(), torch.randn(3, 4)
    names = {"torch_executed_modules": ["act"], "torch_executed_ops": ["aten.softmax"]}
    assert difference(model(x), compile_model(model, **names)(x)) is None
    left = [[one.operator for engine in report.engines for one in engine.left] for report in torch_compile.reports()]
    assert left == [["aten.gelu.default", "aten.softmax.int"], []]
    assert ["'act'" in one or "'aten.softmax'" in one for one in _warnings(caplog)] == [True, True]


def test_a_failed_build_is_an_error(compile_model: CompileModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that fails is not passed over: whoever asked for an engine has to know."""

    def fail(*_: object) -> None:
        raise BuildError("interpreter", "no compiler")

    monkeypatch.setattr(Interpreter, "build", fail)
    with pytest.raises(BackendCompilerFailed, match="building interpreter failed: no compiler") as failed:
        compile_model(lambda x: x + 1)(torch.ones(3))
    assert isinstance(_cause(failed), BuildError)


def test_modes_are_settings() -> None:
    """A mode is the options of Inductor that it stands for; one that a package cannot have is an error."""
    assert Options.of(None, "default") == Options.of({}, None)
    assert Options.of(None, "max-autotune-no-cudagraphs").settings.inductor.options["max_autotune"] is True
    with pytest.raises(SettingsError, match=r"'reduce-overhead': unknown; known: default, max-autotune-no-cudagraphs"):
        Options.of(None, "reduce-overhead")


def _two_copies(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.contiguous(), x.reshape(-1), x[0].contiguous(), x.contiguous()


@pytest.mark.parametrize(
    "x",
    [torch.ones(4, 1).expand(4, 4), torch.ones(4, 8)[:, :4], torch.ones(8, 4)[::2], torch.ones(4, 4).t()],
    ids=["expanded", "columns", "rows", "transposed"],
)
def test_copies_that_eager_torch_makes_are_apart(compile_model: CompileModel, x: torch.Tensor) -> None:
    """The engine's input is one copy, and later code may write to a result."""
    results, expected = compile_model(_two_copies)(x), _two_copies(x)
    for made in (results, expected):
        made[0].zero_()
    assert [float(one.sum()) for one in results] == [float(one.sum()) for one in expected]
    assert results[0] is not results[3]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: (x + 1).expand(3, *x.shape),
        lambda x: (x * 2, (x + 1)[:, :2]),
        lambda x: x.t() + 1,
        lambda x: ((x * 2).sum(1), x.sum()),
        lambda x: (x + 1).unfold(1, 2, 1),
    ],
)
def test_results_have_the_strides_of_eager_torch(
    compile_model: CompileModel, function: Callable[[torch.Tensor], Any], dynamic: bool | None
) -> None:
    """Code after a graph break was traced with them."""
    compiled = compile_model(function, dynamic=dynamic)
    for x in (torch.randn(4, 3).t()[1:], torch.randn(5, 6), torch.randn(6, 5).t()):
        results, expected = (torch.utils._pytree.tree_leaves(one(x)) for one in (compiled, function))
        for result, value in zip(results, expected, strict=True):
            torch.testing.assert_close(result, value)
            assert result.stride() == value.stride()


def test_strides_that_later_code_reads_are_right(compile_model: CompileModel) -> None:
    """They were traced before the graph break."""

    def walk(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        strides = y.stride()
        torch._dynamo.graph_break()
        return y.as_strided(y.shape, strides)

    x = torch.arange(12.0).view(4, 3).t()[1:]
    assert torch.equal(compile_model(walk)(x), walk(x))


def test_a_view_in_another_dtype_of_a_tensor_that_is_not_returned(compile_model: CompileModel) -> None:
    """It is a result of its own, with its own strides."""

    def real_parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.view_as_real(x * 2)[..., :1], x + 1

    x = torch.arange(6.0).view(3, 2).to(torch.complex64).t()
    for mine, expected in zip(compile_model(real_parts)(x), real_parts(x), strict=True):
        assert torch.equal(mine, expected)


@pytest.mark.parametrize("before", [False, True])
def test_the_gradient_mode_that_a_graph_ends_in_stays(compile_model: CompileModel, before: bool) -> None:
    """As ``set_grad_enabled(self.training)`` in ``forward`` leaves it."""

    def change(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(not before)
        return x * 2

    compiled = compile_model(change)
    for _ in range(2):
        with torch.set_grad_enabled(before):
            compiled(torch.ones(3))
            assert torch.is_grad_enabled() is not before


def test_a_view_of_a_parameter_requires_gradients_as_in_eager_torch(compile_model: CompileModel) -> None:
    """Also without gradients being recorded."""
    model = nn.Linear(3, 3)

    def view(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return model.weight.t(), x + model.weight

    with torch.no_grad():
        assert [one.requires_grad for one in compile_model(view)(torch.ones(3, 3))] == [True, False]


def test_a_changed_view_of_a_parameter_runs_in_eager_torch(compile_model: CompileModel) -> None:
    """Torch cannot describe it."""
    model = nn.Linear(2, 2)

    def change(x: torch.Tensor) -> torch.Tensor:
        view = model.weight.t()
        view.mul_(2)
        return view * x

    with torch.no_grad():
        expected = model.weight.t() * 2
        assert torch.equal(compile_model(change)(torch.ones(2)), expected)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"options": {"training": None}}, "training"),
        ({"options": {"training": 3}}, "training"),
        ({"mode": 3}, "mode"),
        ({"options": "x"}, "expected a mapping"),
        ({"options": [1]}, "expected a mapping"),
    ],
)
def test_options_of_another_type_are_refused(given: dict[str, Any], why: str) -> None:
    """The error names the option."""
    with pytest.raises(SettingsError, match=why):
        Options.of(given.get("options"), given.get("mode"))
