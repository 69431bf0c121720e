"""Programs under ``torch.compile``: they compute what eager torch does, and a new size builds nothing."""

from __future__ import annotations

import copy
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from tests.comparing import difference
from tests.models import ConvNorm
from trtcache.integrations import torch_compile
from trtcache.integrations.dynamo.calls import enter_dual_level, regions
from trtcache.integrations.dynamo.engines import capture_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.integrations.dynamo.conftest import CompileModel, Made


def _structured(x: torch.Tensor, *, scale: float, more: dict[str, Any]) -> dict[str, Any]:
    return {"scaled": [x * scale, (more["y"], "text")], "rows": x.shape[0], "none": None}


class Broken(nn.Module):
    """Two graphs, with Python between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = self.one(x)
        torch._dynamo.graph_break()
        return self.two(half)


class Counting(nn.Module):
    """Changes buffers in several ways: statistics, a counter that nothing reads, a table."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("table", torch.zeros(8, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        self.table.index_copy_(0, torch.arange(2), x[:2])
        return self.norm(x), self.table.sum(0)


class Views(nn.Module):
    """Writes, after a break, through views of an input and of what the first graph computed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = x @ self.weight
        corner, (left, right), flat, turned = made[1:, :2], made.chunk(2, -1), x.view(-1), self.weight.t()
        torch._dynamo.graph_break()
        flat.add_(3)
        torch._dynamo.graph_break()
        corner.mul_(2)
        torch._dynamo.graph_break()
        return x, made, corner, left, right, flat, turned, turned.sum()


def _x(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 4)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "linear": (nn.Linear(4, 4), lambda: (_x(),), {}),
    "folded": (ConvNorm().eval(), lambda: (torch.randn(2, 3, 8, 8),), {}),
    "attention": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), lambda: (torch.randn(2, 3, 4),), {}),
    "structured": (_structured, lambda: (_x(),), {"scale": 2.0, "more": {"y": torch.ones(2)}}),
    "broken": (Broken(), lambda: (_x(),), {}),
    "counting": (Counting(), lambda: (_x(),), {}),
    "views": (Views(), lambda: (_x(),), {}),
    "random": (lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x), lambda: (_x(),), {}),
    "in_place": (lambda x, y: (x.add_(y), x.t(), y[0]), lambda: (_x(), _x()), {}),
    "turned": (lambda x: x.t() @ x, lambda: (torch.randn(4, 3).t(),), {}),
    "mapped": (lambda x, y: torch.vmap(torch.dot)(x, y), lambda: (_x(), _x()), {}),
    "conjugated": (lambda x: (x.real + 1, x.imag * 2), lambda: (torch.randn(3, dtype=torch.complex64).conj(),), {}),
    "no_tensors": (lambda: torch.ones(3), tuple, {}),
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, torch.no_grad) for name in PROGRAMS),
        ("folded", torch.inference_mode),
        ("counting", torch.inference_mode),
    ],
)
def test_a_program_does_what_it_does_in_eager_torch(
    compile_model: CompileModel, made: Made, name: str, mode: Callable[[], Any]
) -> None:
    """Results, changed arguments and changed buffers are those of eager torch, call after call, by engines alone."""
    program, arguments, kwargs = PROGRAMS[name]
    model, twin = copy.deepcopy(program), copy.deepcopy(program)
    compiled = compile_model(model)
    with mode():
        for seed in range(2):
            args = arguments()
            others = copy.deepcopy(args)
            torch.manual_seed(seed)
            expected = twin(*args, **copy.deepcopy(kwargs))
            torch.manual_seed(seed)
            found = compiled(*others, **copy.deepcopy(kwargs))
            assert difference((expected, args), (found, others)) is None
    assert all(engines == 1 for engines, _ in made())
    if isinstance(model, nn.Module) and isinstance(twin, nn.Module):
        assert difference(dict(twin.state_dict()), dict(model.state_dict())) is None


def test_results_that_are_arguments_are_the_arguments(compile_model: CompileModel, made: Made) -> None:
    """A changed argument that is returned is the caller's own tensor, and a view of it lies in its memory."""
    x = _x()
    with torch.no_grad():
        same, view = compile_model(lambda x: (x.add_(1), x[1:]))(x)
    assert same is x
    assert view.data_ptr() == x[1:].data_ptr()
    assert made() == [(1, 1)]


def test_a_result_that_casts_lazily_is_left_to_torch(compile_model: CompileModel) -> None:
    """A graph that returns its argument conjugated, which no view by sizes and strides is, runs in eager torch."""
    x = torch.randn(3, dtype=torch.complex64)
    found, _ = compile_model(lambda x: (x.conj(), x * 2))(x)
    assert torch.equal(found, x.conj())
    assert found.is_conj()
    (report,) = torch_compile.reports()
    assert report.eager == ["its result conj is l_x_ read as something else"]


def test_a_new_size_builds_nothing(compile_model: CompileModel, made: Made) -> None:
    """Dynamo makes a second graph when a size changes, with numbers as results; later sizes build nothing."""
    model = nn.Linear(4, 4)
    compiled = compile_model(lambda x: (model(x).reshape(-1), x.shape[0] * 2 + 1))
    with torch.no_grad():
        for rows in (3, 5, 8, 13, 2):
            x = _x(rows)
            assert difference((model(x).reshape(-1), rows * 2 + 1), compiled(x)) is None
    assert made() == [(1, 1), (1, 1)]


def test_a_marked_size_builds_once(compile_model: CompileModel, made: Made) -> None:
    """A size that ``mark_dynamic`` lets vary between bounds has one graph and one engine, with those bounds."""
    model = nn.Linear(4, 4)
    compiled = compile_model(model)
    with torch.inference_mode():
        for rows in (3, 5, 64):
            x = _x(rows)
            torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
            assert difference(model(x), compiled(x)) is None
    assert made() == [(1, 1)]
    (key,) = [one.partitions[0].key for report in torch_compile.reports() for one in report.engines]
    assert key is not None
    assert key.document["parts"]["sizes"] == [[2, 64]]


def test_every_size_may_vary(compile_model: CompileModel, made: Made) -> None:
    """With ``dynamic=True`` the first graph takes every size but 0 and 1."""
    model = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    compiled = compile_model(model, dynamic=True)
    with torch.no_grad():
        for batch, tokens in ((2, 3), (4, 7), (3, 2)):
            x = torch.randn(batch, tokens, 4)
            assert difference(model(x), compiled(x)) is None
    # Dynamo of torch 2.11 leaves the layer's one operator to eager torch.
    assert made() == ([(1, 1)] if torch.__version__ >= "2.13" else [])


def test_a_number_that_is_no_size_has_engines_of_its_own(
    compile_model: CompileModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument that varies is in the program: each value has its engine, up to a limit, and the report says so."""
    monkeypatch.setattr(torch_compile, "MOST_ENGINES", 3)

    def padded(x: torch.Tensor, count: int) -> torch.Tensor:
        return nn.functional.pad(x, (0, count)) * count

    compiled, x = compile_model(padded), _x()
    for count in (2, 3, 4, 3, 5, 6, 6, 4):
        assert torch.equal(compiled(x, count), padded(x, count))
    first, second = torch_compile.reports()
    assert [one.name for one in first.engines] == ["test_torch_compile.padded"]
    assert [one.name for one in second.engines] == [
        f"test_torch_compile.padded (l_count_ = {one})" for one in (3, 4, 5)
    ]
    assert second.eager == ["it has 3 engines for numbers that are not an input's size, and there are more"]


def test_a_fraction_that_varies_builds_nothing(compile_model: CompileModel, made: Made) -> None:
    """A float argument is an input from its second value on."""
    compiled, x = compile_model(lambda x, scale: x * scale), _x()
    for scale in (0.5, 1.5, 2.5, 3.5):
        assert torch.equal(compiled(x, scale), x * scale)
    assert made() == [(1, 1), (1, 1)]


def test_no_more_is_kept_of_numbers_than_the_limit(tmp_path: Path, interpreter: str, monkeypatch: Any) -> None:
    """A number beyond the limit runs in eager torch each time, and leaves nothing behind."""
    monkeypatch.setattr(torch_compile, "MOST_ENGINES", 2)
    made: list[torch_compile.CompiledGraph] = []
    options = {"backend": interpreter, "cache": tmp_path / "cache"}

    def backend(graph_module: torch.fx.GraphModule, examples: list[Any]) -> torch_compile.CompiledGraph:
        made.append(torch_compile.backend(graph_module, examples, options=options))
        return made[-1]

    compiled, x = torch.compile(lambda x, by: nn.functional.pad(x, (0, by)) * by, backend=backend, dynamic=True), _x()
    for by in range(2, 12):
        assert torch.equal(compiled(x, by), nn.functional.pad(x, (0, by)) * by)
    assert len(made) == 1
    assert len(made[0]._handlers) == 2
    assert len(made[0].report.eager) == 1


def test_torch_says_nothing_where_a_fraction_cannot_be_an_input(
    compile_model: CompileModel, made: Made, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A program that decides by a fraction is built for its value; the export that failed before is in the log."""

    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return nn.functional.dropout(x * by, by, training=False)  # which wants to know whether it is a probability

    compiled, x = compile_model(scaled), _x()
    with caplog.at_level(logging.DEBUG, "trtcache.integrations.dynamo.engines"):
        for by in (0.25, 0.5):
            assert torch.equal(compiled(x, by), scaled(x, by))
    assert "def forward" not in "".join(capfd.readouterr())
    said = [one.getMessage() for one in caplog.records if one.getMessage().startswith("messages of torch")]
    assert ["def forward" in one for one in said] == [True]
    assert [engines for engines, _ in made()] == [1, 1]


def test_what_took_standard_error_during_an_export_may_keep_it(capfd: pytest.CaptureFixture[str]) -> None:
    """A handler or a process of another thread: it writes where standard error is, then and later."""
    with capture_messages(logging.getLogger("unused")):
        handler = logging.StreamHandler()
        sys.stderr.write("kept\n")
        subprocess.run(["echo", "of a process"], stdout=sys.stderr, check=True)
        assert (sys.stderr.isatty(), sys.stderr.encoding.lower()) == (False, "utf-8")
        sys.stderr.buffer.write(b"bytes\n")
        sys.stderr.flush()
    handler.emit(logging.makeLogRecord({"msg": "later"}))
    assert capfd.readouterr().err.splitlines() == ["of a process", "bytes", "later"]


def test_threads_make_engines_at_once(compile_model: CompileModel, made: Made) -> None:
    """Threads whose numbers and sizes are new, for Dynamo or only for us, get what eager torch gives."""

    def padded(x: torch.Tensor, by: int) -> torch.Tensor:
        return nn.functional.pad(x, (by, by)) * by

    def run(first: int) -> list[str | None]:
        calls = [(torch.randn(2 + step % 3, 4), 1 + (first + step) % 6) for step in range(6)]
        return [difference(padded(*call), compiled(*call)) for call in calls]

    compiled = compile_model(padded, dynamic=True)
    with ThreadPoolExecutor(4) as threads:
        assert {why for found in threads.map(run, range(4)) for why in found} == {None}
    made()
    # A compilation with dynamic=True changes it; threads share it in torch 2.11, and one of several can leave it so.
    torch._dynamo.config.assume_static_by_default = True


_CONTROL_FLOW = """
import faulthandler, sys, threading, torch, trtcache
from trtcache.integrations import torch_compile
cache, exporting, compiling = sys.argv[1], threading.Event(), threading.Event()

class Model(torch.nn.Module):
    def forward(self, x):
        exporting.set()
        return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))

def export():
    compiling.wait()
    try:
        trtcache.compile(Model(), (torch.ones(2),), cache=cache)
    except trtcache.errors.ExportError as error:
        print("control flow" in str(error))

def backend(module, inputs):
    compiling.set()
    exporting.wait(2)  # if the other thread can export meanwhile
    return torch_compile.backend(module, inputs, options={"cache": cache})

def compile_():
    with torch.no_grad():
        print(float(torch.compile(lambda x: x * 3 + 1, backend=backend)(torch.ones(4)).sum()))

faulthandler.dump_traceback_later(200, exit=True)
threads = [threading.Thread(target=one) for one in (export, compile_)]
for one in threads: one.start()
for one in threads: one.join()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_an_export_of_control_flow_and_a_compilation_end(tmp_path: Path) -> None:
    """Each needs the lock of the other: Dynamo's, and that of exports."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CONTROL_FLOW, str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["16.0", "True"]), done.stderr


def test_a_call_beside_the_export_of_another_thread_annotates_nothing(
    compile_model: CompileModel, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch annotates calls while any thread exports, in a global; it keeps to short functions of its own."""
    annotated = []

    def annotate(annotation: dict[str, object]) -> AbstractContextManager[None]:
        annotated.append(annotation["_torchdynamo_disable_method"])
        return nullcontext()

    compiled, x = compile_model(nn.Linear(4, 4)), _x()
    with torch.no_grad():
        before = compiled(x)
        monkeypatch.setattr(torch.fx.traceback, "annotate", annotate)
        monkeypatch.setattr(torch.compiler, "_is_exporting_flag", True)
        assert torch.equal(compiled(x), before)
    assert made() == [(1, 1)]
    assert set(annotated) <= {"record_pregraph_bytecode_enter", "record_pregraph_bytecode_exit"}


def test_autocast_is_part_of_the_program(compile_model: CompileModel, made: Made) -> None:
    """Under ``torch.autocast`` results have the type that eager torch gives them, and without it their own."""
    model, x = nn.Linear(4, 4), _x()
    compiled = compile_model(model)
    with torch.no_grad():
        for enabled in (True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                assert difference(model(x), compiled(x)) is None
    assert made() == [(1, 1), (1, 1)]


def _in_regions(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.autocast("cpu", torch.bfloat16):
        half = model(x)
        with torch.autocast("cpu", enabled=False):
            whole = model(half.float())
        again = model(x)
    return half + 1, whole, again.float(), model(x)


@torch.no_grad()
@pytest.mark.parametrize("around", [False, True])
def test_regions_of_autocast_are_part_of_the_program(compile_model: CompileModel, made: Made, *, around: bool) -> None:
    """A region in the model has its own precision, whatever is around it; results have the types of eager torch."""
    model, x = nn.Linear(4, 4), _x()
    compiled = compile_model(lambda x: _in_regions(model, x))
    with torch.autocast("cpu", torch.bfloat16, enabled=around):
        assert difference(_in_regions(model, x), compiled(x)) is None
    assert made() == [(1, 1)]


@torch.no_grad()
def test_a_region_of_autocast_that_fails_is_left(compile_model: CompileModel) -> None:
    """What cannot be exported in a region runs in eager torch, and the precision afterwards is the caller's."""
    model, x = nn.Linear(4, 4), _x()

    def branching(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            made = model(x)
            answer: torch.Tensor = torch.utils.checkpoint.checkpoint(torch.cos, made, use_reentrant=False)
            return answer

    assert difference(branching(x), compile_model(branching)(x)) is None
    assert not torch.is_autocast_enabled("cpu")


def test_a_detached_view_of_a_parameter_requires_no_gradients(compile_model: CompileModel) -> None:
    """Another view of it does, also while gradients are off."""
    weight = nn.Parameter(torch.randn(3, 3))

    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return weight.detach(), weight.detach()[0], weight[0], x + 1

    with torch.no_grad():
        x = _x()
        expected, found = views(x), compile_model(views)(x)
    assert [one.requires_grad for one in found] == [one.requires_grad for one in expected]
    assert difference(expected, found) is None


def _hessian(x: torch.Tensor) -> torch.Tensor:
    return torch.func.hessian(lambda y: (y**3).sum())(x)


def _dual_level(x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        made: torch.Tensor = torch.utils.checkpoint.checkpoint(torch.cos, x, use_reentrant=False)
        return made


@torch.no_grad()
@pytest.mark.parametrize("model", [_hessian, _dual_level])
def test_levels_of_differentiation_that_fail_are_left(
    compile_model: CompileModel, model: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """``torch.export`` fails in one: the graph runs in eager torch, and so does differentiation after it."""
    x, compiled = torch.randn(3), compile_model(model)
    for _ in range(2):
        assert difference(model(x), compiled(x)) is None
    (report,) = torch_compile.reports()
    assert report.eager
    assert not report.engines
    torch.func.jvp(torch.sin, (x,), (x,))


def test_regions_are_left() -> None:
    """Levels of ``torch.func``, and regions without hooks for saved tensors."""
    with regions():
        torch._C._functorch._vmap_increment_nesting(2, "error")
        torch._C._functorch._jvp_increment_nesting()
        enter_dual_level()
        torch._C._set_fwd_grad_enabled(False)
        torch._C._functorch._grad_increment_nesting()
        torch._C._autograd._saved_tensors_hooks_disable("not here")
    x = torch.randn(3)
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    assert torch.equal(torch.func.jvp(torch.sin, (x,), (x,))[1], x.cos() * x)
    with torch.autograd.graph.save_on_cpu():
        assert x.requires_grad_().sin().requires_grad
    assert [one.engines for one in torch_compile.reports()] == [[]]


def test_reports_tell_what_was_done(compile_model: CompileModel, caplog: pytest.LogCaptureFixture) -> None:
    """A report names the graph by where it begins or as the user does, and shows each engine; the log has it too."""
    with torch.no_grad(), caplog.at_level(logging.INFO):
        compile_model(Broken())(_x())
        torch._dynamo.reset()
        compile_model(Broken(), name="mine")(_x())
    names = [report.name for report in torch_compile.reports()]
    assert names[0] == "test_torch_compile.forward"
    assert names[1].startswith("test_torch_compile.torch_dynamo_resume_in_forward")
    assert names[2:] == ["mine", "mine"]
    text = str(torch_compile.reports()[2])
    assert text.startswith("mine: 1 engine, 1 set of weights\nmine: interpreter for cpu")
    assert "hit" in text
    assert text.partition("\n")[2] in caplog.text
    torch_compile.clear_reports()
    assert torch_compile.reports() == ()


@pytest.mark.parametrize("model", [Broken(), Counting()], ids=["breaks", "changes weights"])
def test_a_graph_that_was_compiled_before_is_not_lowered(compile_model: CompileModel, model: nn.Module) -> None:
    """Another program with it goes by memos, and answers and changes its weights as eager torch does."""
    model.eval()
    x = torch.randn(3, 4)
    with torch.no_grad():
        compile_model(copy.deepcopy(model))(x)
        torch._dynamo.reset()
        torch_compile.clear_reports()
        eager, again = copy.deepcopy(model), copy.deepcopy(model)
        run = compile_model(again)
        for _ in range(2):
            assert difference(eager(x), run(x)) is None
    assert {report.route for one in torch_compile.reports() for report in one.engines} == {"alias"}
    assert difference(eager.state_dict(), again.state_dict()) is None
