"""``trtcache build``, ``why`` and ``show`` of ONNX files, without a torch model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.frontends.onnx.graphs import saved, small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

pytestmark = pytest.mark.slow

FOR = ("--backend", "tensorrt_rtx", "--target", "sm_89")


def test_a_plan_of_an_onnx_file_is_built_once_and_written(run: Callable[..., Result], tmp_path: Path) -> None:
    """The plan is in a file; the second command parses nothing; a retrained file differs; ls and show list it."""
    path = saved(tmp_path / "small.onnx", small())
    first = run("build", path, *FOR, "--shape", "x=1:4:8x4", "-o", tmp_path / "small.plan")
    assert first.code == 0, first.err
    assert ["outcome", "built (absent), read"] in first.rows
    assert (tmp_path / "small.plan").stat().st_size > 1000
    second = run("build", path, *FOR, "--shape", "x=1:4:8x4", "--json").json
    assert (second["outcome"], second["route"], second["name"]) == ("hit", "alias", "small")
    assert run("why", path, *FOR, "--shape", "x=1:4:8x4", "--json").json["outcome"] == "hit"
    other = saved(tmp_path / "new.onnx", small(1), external=True)
    other.rename(tmp_path / "small.onnx")
    why = run("why", path, *FOR, "--shape", "x=1:4:8x4", "--json").json
    assert (why["outcome"], why["nearest"]) == ("miss", second["key"])
    assert {one["where"] for one in why["differences"]} == {"frozen[0][1]", "frozen[1][1]"}
    kinds = {one["kind"] for one in run("ls", "--all", "--json").json["entries"]}
    assert kinds == {"alias", "tensorrt_rtx"}
    assert ["part opsets", '{"ai.onnx": 17}'] in run("show", second["key"]).rows


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ("x", "'x' is not INPUT=SIZES"),
        ("=1x4", "'=1x4' is not INPUT=SIZES"),
        ("x=1:y", "has '1:y' instead of a size, min:max or min:opt:max"),
        ("x=1:2:3:4", "instead of a size"),
        ("x=", "has '' instead of a size"),
        ("x=-1", "has '-1' instead of a size"),
        ("x=1.5", "has '1.5' instead of a size"),
        ("x=1:64:32x4", "sizes '1:64:32' that are not ascending: min <= opt <= max"),
        ("x=1:8:99999999999999999999x4", "larger than 2^63 - 1"),
        ("x=8:4x4", "sizes '8:4' that are not ascending"),
    ],
)
def test_a_malformed_shape_is_reported(run: Callable[..., Result], tmp_path: Path, shape: str, why: str) -> None:
    """With exit code 2, like other options."""
    done = run("build", saved(tmp_path / "small.onnx", small()), *FOR, "--shape", shape)
    assert done.code == 2
    assert why in done.err


def test_opt_is_part_of_the_key(run: Callable[..., Result], tmp_path: Path) -> None:
    """``min:max`` is ``min:max:max``: the engine is tuned for it, and another opt is another entry."""
    path = saved(tmp_path / "small.onnx", small())
    assert run("build", path, *FOR, "--shape", "x=1:8x4").code == 0
    for shape, outcome in (("x=1:8x4", "hit"), ("x=1:8:8x4", "hit"), ("x=1:4:8x4", "miss")):
        assert run("why", path, *FOR, "--shape", shape, "--json").json["outcome"] == outcome


def test_missing_and_duplicate_shapes_are_reported(run: Callable[..., Result], tmp_path: Path) -> None:
    """The message names the input; an unknown name is reported too; a program accepts none."""
    path = saved(tmp_path / "small.onnx", small())
    none, twice, unknown, outside = (
        run("build", path, *FOR, *more)
        for more in (
            (),
            ("--shape", "x=1x4", "--shape", "x=2x4"),
            ("--shape", "z=1x4"),
            ("--shape", "x=1x5"),
        )
    )
    assert (none.code, twice.code, unknown.code, outside.code) == (6, 2, 1, 1)
    assert "input 'x' has sizes that vary: (N, 4); pass trtcache.Input" in none.err
    assert "or --shape" in none.err
    assert "is given twice" in twice.err
    assert "argument z: expected one of x" in unknown.err
    assert "expected shape (N, 4), got shape (1, 5)" in outside.err
    missing = run("build", tmp_path / "model.pt2", "--shape", "x=1x4")
    assert (missing.code, "the file does not exist" in missing.err) == (1, True)
    (tmp_path / "model.pt2").touch()
    program = run("build", tmp_path / "model.pt2", "--shape", "x=1x4")
    assert (program.code, "has sizes of its own" in program.err) == (2, True)
