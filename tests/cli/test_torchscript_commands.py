"""``trtcache build``, ``why`` and ``lower`` of TorchScript files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

SHAPES = ("--shape", "x=3x4", "--shape", "ids=2,int64", "--shape", "times=2")


class Picks(torch.nn.Module):
    """Takes rows, and multiplies them by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor, ids: torch.Tensor, times: int) -> torch.Tensor:
        return x[ids] * self.weight * times


class Product(torch.nn.Module):
    """Takes rows of four."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A TorchScript file."""
    torch.jit.script(Picks()).save(str(tmp_path / "picks.pt"))
    return tmp_path / "picks.pt"


def test_a_torchscript_file_is_built_found_and_shown(
    run: Callable[..., Result], file: Path, interpreter: str, tmp_path: Path
) -> None:
    """With the shape, dtype or number of each argument; compile of the module is a hit."""
    asked = (file, "--backend", interpreter, *SHAPES)
    assert run("why", *asked, "--json").json["outcome"] == "miss"
    built = run("build", *asked, "-o", tmp_path / "engine", "--json").json
    assert (built["outcome"], built["name"]) == ("built", "picks")
    assert (tmp_path / "engine").read_text().startswith("graph ")
    assert run("build", *asked, "--json").json["outcome"] == "hit"
    assert run("why", *asked, "--json").json == {
        "key": built["key"],
        "outcome": "hit",
        "reason": "",
        "nearest": None,
    } | {"differences": []}
    inputs = torch.randn(3, 4), torch.zeros(2, dtype=torch.int64), 2
    module = trtcache.compile(torch.jit.load(file), inputs, backend=interpreter)  # type: ignore[no-untyped-call]
    assert module.report.partitions[0].outcome == "hit"
    assert "aten.index" in run("lower", *asked).out


@pytest.mark.parametrize("command", ["build", "why", "lower"])
def test_each_argument_of_a_torchscript_file_needs_its_shape(
    run: Callable[..., Result], file: Path, interpreter: str, command: str
) -> None:
    """With exit code 2; a misspelt or dynamic one is reported too."""
    for shapes, message in (
        ((), "argument x: a TorchScript file has no sizes; say x=SIZES"),
        (("--shape", "y=3x4"), "argument y: unknown; known: "),
        (("--shape", "x=1:3x4"), "has a range of sizes"),
    ):
        done = run(command, file, "--backend", interpreter, *shapes)
        assert (done.code, message in done.err) == (2, True), done.err


@pytest.mark.parametrize("command", ["build", "why", "lower", "tune", "export"])
def test_a_wrong_shape_is_one_line(
    run: Callable[..., Result], tmp_path: Path, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has torch's reason, and torch's own traceback is not printed."""
    torch.jit.script(Product()).save(str(tmp_path / "product.pt"))
    output = ("-o", tmp_path / "program.pt2") if command == "export" else ()
    caplog.clear()
    done = run(command, tmp_path / "product.pt", "--shape", "x=2x5", *output)
    error = done.err.removeprefix("compiling product.pt, unless it is cached\n")
    assert done.code == 1
    said = 'Product cannot be exported: at "return x @ self.weight": .*5.*4.*; give inputs of the sizes'
    assert re.fullmatch(f"trtcache: error: {said}.*\n", error), error
    assert not [one for one in caplog.records if one.name == "torch._subclasses.fake_tensor"]


def test_a_program_has_sizes_of_its_own(run: Callable[..., Result], tmp_path: Path, interpreter: str) -> None:
    """None can be given."""
    path = tmp_path / "linear.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.randn(2, 2),)), path)
    for command in ("build", "lower", "why"):
        done = run(command, path, "--backend", interpreter, "--shape", "x=2x2")
        assert (done.code, "of its own" in done.err or "already has sizes" in done.err) == (2, True), done.err
