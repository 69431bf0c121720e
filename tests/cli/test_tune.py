"""``trtcache tune``: the grid, its figures, the plot, and errors."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import pytest
import torch
from torch.utils import _pytree as pytree

import trtcache
from tests.documents import console, shape
from tests.models import Affine
from trtcache.config.threads import cores
from trtcache.errors import InputError
from trtcache.runtime.module_call import CallSignature
from trtcache.runtime.tuning import Cell, Effort, busiest, fastest, grid, measure, sample
from trtcache.testing.interpreter import Interpretation, Interpreter
from trtcache_cli import tune as command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

X = torch.randn(3, 4)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a dynamic first size, an integer and a flag among its inputs."""
    path = tmp_path_factory.mktemp("tune") / "mixed.pt2"
    batch = torch.export.Dim("batch", min=2, max=8)
    inputs = {"x": X, "ids": torch.zeros(3, dtype=torch.int64), "keep": torch.ones(2, dtype=torch.bool)}
    shapes = {"x": {0: batch}, "ids": {0: batch}, "keep": {}}
    torch.export.save(torch.export.export(Mixed(), (), inputs, dynamic_shapes=shapes, strict=False), path)
    return path


class Mixed(torch.nn.Module):
    """Looks rows up in a table of one row."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(1, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return (x + self.table(ids)) * keep.any()


def test_tune_measures_each_cell_and_names_the_best(
    run: Callable[..., Result], file: Path, tmp_path: Path, interpreter: str
) -> None:
    """As lines and as JSON; what exceeds the cores is skipped, and a plot is drawn."""
    asked = ("tune", file, "--backend", interpreter, "--calls", 3, "--shape", "x=4x4")
    grid_of = ("--threads", f"1,{cores() + 1}", "--runners", "1,2" if cores() > 1 else "1")
    done = run(*asked, *grid_of, "-o", tmp_path / "plot.png")
    assert done.code == 0, done.err
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    measured, skipped = done.rows[0], done.rows[1]
    assert measured[:2] == ["1", "1"]
    assert int(measured[2]) >= 3
    assert "latency" in ",".join(row[6] for row in done.rows)
    assert skipped[6] == f"skipped: {cores() + 1} threads are more than {cores()} cores"
    assert "best for throughput: trtcache.threads(intra=1, inter=" in done.err
    found = run(*asked, *grid_of, "--json").json
    assert [(one["threads"], one["runners"]) for one in found["cells"]] == [
        (int(row[0]), int(row[1])) for row in done.rows
    ]
    assert 0 < found["best_latency"]["median_s"] <= found["best_latency"]["p95_s"]
    if cores() > 1:
        assert "does not support it" in found["why_not"]
        assert "runners are not concurrent" in done.err


def test_a_plot_that_cannot_be_written_loses_no_measurement(
    run: Callable[..., Result], file: Path, tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are printed first; and the name of a program is no formula."""
    pytest.importorskip("matplotlib", reason="WAS NOT TRIED: matplotlib is not installed")
    odd = file.with_name("a$\\frac$b.pt2")
    odd.write_bytes(file.read_bytes())
    asked = ("tune", odd, "--backend", interpreter, "--calls", 1, "--shape", "x=4x4", "--threads", 1, "--runners", 1)
    assert run(*asked, "-o", tmp_path / "plot.svg").code == 0
    assert b"<svg" in (tmp_path / "plot.svg").read_bytes()

    def fill(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trtcache_cli.tune_plot.draw", fill)
    done = run(*asked, "-o", tmp_path / "full.png")
    assert (done.code, done.rows[0][:2], "No space left" in done.err) == (1, ["1", "1"], True)
    assert not (tmp_path / "full.png").exists()


def test_ways_to_take_weights_take_turns(run: Callable[..., Result], file: Path, interpreter: str) -> None:
    """Each is compiled and measured, with its ratio to the first; a backend without one says so."""
    asked = ("tune", file, "--backend", interpreter, "--calls", 3, "--threads", 1, "--runners", 1, "--shape", "x=4x4")
    done = run(*asked, "--weights", "refittable")
    assert done.code == 0, done.err
    assert "weights=refittable: median " in done.err
    found = run(*asked, "--weights", "refittable", "--json").json["compared"]
    assert found["refittable"]["calls"] >= 3
    refused = run(*asked, "--weights", "refittable,packed")
    assert refused.code == 2
    assert "takes 'refittable' only" in refused.err
    assert "'dense' is not one of refittable, packed, frozen" in run(*asked, "--weights", "dense").err


@pytest.mark.slow
def test_packed_and_frozen_engines_are_compared(run: Callable[..., Result], tmp_path: Path) -> None:
    """The three ways of AOTInductor are built, measured and shown with their ratios."""
    path, example = tmp_path / "line.pt2", torch.randn(4, 32)
    torch.export.save(torch.export.export(torch.nn.Linear(32, 32).eval(), (example,), strict=False), path)
    ways = ("refittable", "packed", "frozen")
    done = run("tune", path, "--calls", 3, "--threads", 1, "--runners", 1, "--weights", ",".join(ways))
    assert done.code == 0, done.err
    assert [done.err.count(f"weights={way}: median ") for way in ways] == [1, 1, 1]
    assert done.err.count(" of refittable") == 2


def test_tune_takes_torchscript_with_the_shapes_of_its_arguments(
    run: Callable[..., Result], tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dtype may follow the sizes, a number is itself, what has a default may be left out; a terminal has a bar."""
    script = torch.jit.script(Scaled())
    script.save(str(tmp_path / "scaled.jit"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    asked = ("tune", tmp_path / "scaled.jit", "--backend", interpreter, "--calls", 1, "--threads", 1, "--runners", 1)
    done = run(*asked, "--shape", "x=3x4", "--shape", "ids=3,int64", "--shape", "times=2")
    assert (done.code, len(done.rows)) == (0, 1), done.err
    assert "runners 1" in done.err


class Scaled(torch.nn.Module):
    """Takes tensors of two dtypes and numbers."""

    def forward(self, x: torch.Tensor, ids: torch.Tensor, times: int, half: bool = False) -> torch.Tensor:
        return x[ids] * times * (0.5 if half else 1.0)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ((), 2, "argument x: expected a number for each size that varies, got ?x4; say x=SIZES"),
        (("--shape", "y=3"), 2, "expected one of x, ids, keep, got y"),
        (("--shape", "x=4"), 2, "argument x: expected 2 sizes, got 4"),
        (("--shape", "x=4x5"), 2, "argument x: expected a size of 4, got 4x5"),
        (("--shape", "x=9x4"), 2, "expected a size of 2 to 8, got 9"),
        (("--shape", "x=4x4", "--shape", "ids=5"), 2, "argument ids: expected the size 4 that another argument has"),
        (("--shape", "x=2:4x4"), 2, "has a range of sizes"),
        (("--threads", "1,two"), 2, "'1,two' is not a comma-separated list"),
        (("--runners", "1000"), 2, "all cells are skipped: 1000 threads are more than"),
        (("--output", "plot.jpg"), 2, "the suffix of plot.jpg is not one of .png"),
        (("--output", "/nowhere/at/plot.png"), 2, "there is no directory /nowhere/at"),
        (("--seconds", "0"), 2, "--seconds"),
        (("--seconds", "nan"), 2, "'nan' is not a number of seconds"),
        (("--seconds", "inf"), 2, "'inf' is not a number of seconds"),
    ],
)
def test_unsupported_arguments_are_reported(
    run: Callable[..., Result], file: Path, interpreter: str, args: tuple[str, ...], code: int, message: str
) -> None:
    """In one line, before anything is measured."""
    done = run("tune", file, "--backend", interpreter, *args)
    assert done.code == code
    assert message in done.err


def test_tune_refuses_onnx_files_and_scripts_without_shapes(run: Callable[..., Result], tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "net.onnx").write_bytes(b"")
    assert "is an ONNX file; tune takes" in run("tune", tmp_path / "net.onnx").err
    script = torch.jit.script(Scaled())
    script.save(str(tmp_path / "scaled.jit"))
    for given, message in (
        ((), "argument x: a TorchScript file has no sizes; say x=SIZES"),
        (("--shape", "y=1"), "argument y: unknown; known: "),
        (("--shape", "x=1,float33"), "argument x: 'float33' is not a dtype"),
        (("--shape", "x=1", "--shape", "ids=1,int64", "--shape", "times=1x2"), "argument times: it is of type int"),
    ):
        done = run("tune", tmp_path / "scaled.jit", *given)
        assert done.code == 2
        assert message in done.err


def test_a_plot_needs_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This is checked before anything is built."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(click.BadParameter, match=r"pip install 'trtcache\[plot\]'"):
        command._check_output(tmp_path / "plot.png")


def test_the_table_is_as_the_document_shows_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each cell, with units; a skipped one has the reason."""
    monkeypatch.setattr(command, "on_terminal", lambda: True)
    cells = [Cell(1, 1, "", [0.01, 0.02, 0.03], 0.06), Cell(2, 1, "", [0.03, 0.05], 0.08)]
    command._print([*cells, Cell(1, 2, "", [0.05, 0.06], 0.03), *grid((2,), (2,), cores=2)], "")
    (shown,) = console("docs/threads.md")["trtcache tune model.pt2 --threads 1,2 --runners 1,2 -o tune.png"]
    assert [shape(line) for line in capsys.readouterr().out.splitlines()] == [shape(line) for line in shown]


def test_cells_have_the_median_the_95th_and_the_throughput_of_all_calls() -> None:
    """Of calls that were under way at once, the seconds of all of them count."""
    cell = Cell(1, 2, "", [number / 100 for number in range(100, 0, -1)], 25.0)
    assert (cell.median_s, cell.p95_s, cell.calls_per_s) == (0.505, 0.95, 4.0)
    assert Cell(1, 1, "", [3.0], 3.0).p95_s == 3.0
    cells = grid((1, 2, 2), (1, 2), cores=2)
    assert [(one.threads, one.runners, bool(one.skipped)) for one in cells] == [
        (1, 1, False),
        (2, 1, False),
        (1, 2, False),
        (2, 2, True),
    ]
    one, other = Cell(1, 1, "", [2.0], 2.0), Cell(2, 1, "", [1.0], 9.0)
    assert (fastest([one, other, cells[3]]), busiest([one, other, cells[3]])) == (other, one)


@pytest.mark.slow
def test_calls_of_runners_are_measured_side_by_side(engines: Path) -> None:
    """At least as many calls as requested, of a package; the thread count is restored."""
    import trtcache

    module = trtcache.compile(Affine(1.0), (X,), cache=engines)
    before, measured = torch.get_num_threads(), []
    cells = [Cell(1, 1), Cell(1, 2), Cell(9, 9, "too many")]
    measure(module, (X,), {}, cells, effort=Effort(calls=12), on_turn=measured.append)
    assert [len(cell.latencies_s) >= 12 for cell in cells] == [True, True, False]
    assert measured == [cells[0], cells[1]] * 3
    seconds = Cell(1, 1)
    measure(module, (X,), {}, [seconds], effort=Effort(seconds=0.03))
    assert len(seconds.latencies_s) >= 6
    assert torch.get_num_threads() == before


def test_tune_tells_that_there_is_nothing_to_tune(
    run: Callable[..., Result], file: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines with threads of their own, whose calls run one after the other, have no best row."""
    monkeypatch.setattr(Interpreter, "capabilities", replace(Interpreter.capabilities, torch_threads=False))
    done = run("tune", file, "--backend", interpreter, "--calls", 3, "--shape", "x=4x4")
    assert done.code == 2
    assert "there is nothing to tune: engines of backend 'interpreter' have threads of their own" in done.err
    assert "and calls run one after the other: " in done.err
    assert not done.out


def test_tune_measures_runners_only_where_threads_change_nothing(
    run: Callable[..., Result], file: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that differ in the number of threads alone would differ by noise, and the best one would be luck."""
    monkeypatch.setattr(Interpreter, "capabilities", replace(Interpreter.capabilities, torch_threads=False))
    monkeypatch.setattr(Interpretation, "parallel", lambda self, _calls: self, raising=False)
    options = ("--backend", interpreter, "--calls", 3, "--shape", "x=4x4", "--threads", "1,2", "--runners", "1,2")
    done = run("tune", file, *options)
    assert done.code == 0, done.err
    assert [row[:2] for row in done.rows] == [["1", "1"], ["1", "2"]]
    assert (
        "only numbers of runners are measured: engines of backend 'interpreter' have threads of their own" in done.err
    )
    assert "best for latency: trtcache.threads(inter=" in done.err
    assert run("tune", file, *options, "--json").json["why_no_threads"]


def test_sizes_that_are_expressions_are_taken_and_compared(interpreter: str, tmp_path: Path) -> None:
    """A size may be given as twice another one; a contradiction is an error."""
    half = torch.export.Dim("half", min=2, max=8)
    program = torch.export.export(Sums(), (torch.ones(6, 4), torch.ones(3)), dynamic_shapes=({0: 2 * half}, {0: half}))
    module = trtcache.compile(program, backend=interpreter, cache=tmp_path / "cache")
    call = CallSignature(module.in_spec, pytree.tree_structure(0), None)
    names = [call.label(one.leaf).removeprefix("argument ") for one in module.interface.inputs]
    for shapes in ({names[0]: (8, 4)}, {names[1]: (4,)}, {names[0]: (8, 4), names[1]: (4,)}):
        (first, second), _ = sample(module.interface, call, shapes)
        assert (first.shape[0], second.shape[0]) == (8, 4)
    with pytest.raises(InputError, match=r"a size of 8, as other sizes say|the size 5 that another"):
        sample(module.interface, call, {names[0]: (10, 4), names[1]: (4,)})


class Sums(torch.nn.Module):
    """A function of two tensors, one twice as long as the other."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the pairs of rows, with their numbers."""
        return x.reshape(-1, 2, 4).sum(1) + y[:, None]
