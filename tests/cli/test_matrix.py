"""The matrix of ``trtcache warm``: products of lists, exclusions, and one error for a wrong file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trtcache.errors import SettingsError
from trtcache_cli.matrix import read_matrix
from trtcache_cli.warm_emit import parse_ranges, ranges

if TYPE_CHECKING:
    from pathlib import Path

MATRIX = """
[defaults]
backend = "aot_inductor"

[defaults.slurm]
time = "1:00:00"

[[cells]]
file = ["bert.pt2", "vit.pt2"]
target = ["x86-64-v3", "x86-64-v4"]
exclude = [{ file = "vit.pt2", target = "x86-64-v4" }]

[[cells]]
file = "models.whisper:small"
shape = [["x=1x80", "ids=1x4,int64"], "x=2x80"]
setting = "inductor.max_autotune=true"
image = { new = "registry/torch:2.12" }
keep_program = true
"""


def _matrix(folder: Path, text: str) -> Path:
    path = folder / "matrix.toml"
    path.write_text(text)
    return path


def test_lists_are_multiplied_and_combinations_excluded(tmp_path: Path) -> None:
    """Each cell is a call of ``trtcache build``; paths are relative to the matrix."""
    matrix = read_matrix(_matrix(tmp_path, MATRIX))
    common = ["--backend", "aot_inductor"]
    assert [cell.arguments for cell in matrix.cells[:3]] == [
        ["--target", target, *common, "--", f"{tmp_path}/{file}"]
        for file, target in (("bert.pt2", "x86-64-v3"), ("bert.pt2", "x86-64-v4"), ("vit.pt2", "x86-64-v3"))
    ]
    rest = [*common, "--setting", "inductor.max_autotune=true", "--keep-program", "--", "models.whisper:small"]
    shapes = [["--shape", "x=1x80", "--shape", "ids=1x4,int64"], ["--shape", "x=2x80"]]
    assert [cell.arguments for cell in matrix.cells[3:]] == [[*shape, *rest] for shape in shapes]
    assert [cell.image for cell in matrix.cells] == ["", "", "", "registry/torch:2.12", "registry/torch:2.12"]
    assert [cell.number for cell in matrix.cells] == list(range(5))
    assert matrix.resources == {"slurm": {"time": "1:00:00"}}


def test_files_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    """A label names the file, unless another program's file is named so."""
    text = '[[cells]]\nfile = ["a/model.pt2", "b/model.pt2", "other.pt2"]\n'
    labels = [cell.label for cell in read_matrix(_matrix(tmp_path, text)).cells]
    assert labels == [f"{tmp_path}/a/model.pt2", f"{tmp_path}/b/model.pt2", "other.pt2"]


def test_a_label_has_what_differs(tmp_path: Path) -> None:
    """Options that all cells have are left out of it."""
    labels = [str(cell) for cell in read_matrix(_matrix(tmp_path, MATRIX)).cells]
    assert labels[0] == "bert.pt2 x86-64-v3"
    assert labels[4] == "models.whisper:small x=2x80 inductor.max_autotune=true [registry/torch:2.12]"


MANY = ", ".join(f'"x={size}"' for size in range(1000))
WRONG = {
    "no TOML": ("[[cells]\nfile = 1", "it is not TOML: .*line 1"),
    "empty": ("", r"cells: a matrix has one \[\[cells\]\] table or more"),
    "another table": ("\n[cell]\n", "line 2: cell: unknown; did you mean 'cells'"),
    "an unknown key": (
        '[[cells]]\nfile = "x"\nbackned = "auto"',
        r"line 3: cells\[0\].backned: .*did you mean 'backend'",
    ),
    "a number": ('[defaults]\nbackend = 1\n[[cells]]\nfile = "x"', "line 2: defaults.backend: 1 is not a text"),
    "an empty list": ('[[cells]]\nfile = "x"\n[[cells]]\nfile = []', r"line 4: cells\[1\].file: it is an empty list"),
    "no file": ('[[cells]]\nshape = "x=1"', r"line 1: cells\[0\].file: it is missing"),
    "all excluded": ('[[cells]]\nfile = "a"\nexclude = [{ file = "a" }]', "every cell is excluded"),
    "an exclusion of nothing": ('[[cells]]\nfile = "a"\nexclude = [{ file = "b" }]', "line 3: .*no cell of this table"),
    "a million cells": (
        f'[[cells]]\nfile = "a"\nshape = [{MANY}]\ntarget = [{MANY}]',
        r"cells\[0\]: it makes 1,000,000 cells; at most 100,000",
    ),
    "resources that are no table": ('[defaults]\nslurm = 3\n[[cells]]\nfile = "x"', "line 2: defaults.slurm"),
    "a malformed shape": (
        '[[cells]]\nfile = "a.onnx"\n\nshape = "x=8y4"',
        r"line 4: cells\[0\].shape: 'x=8y4' has '8y4'",
    ),
    "one of several": ('[[cells]]\nfile = "a"\nshape = [["x=2", "y"]]', r"line 3: cells\[0\].shape: 'y' is not INPUT="),
    "an input twice": ('[defaults]\nshape = [["x=2", "x=3"]]\n[[cells]]\nfile = "a"', "line 2: .*'x=2' is given twice"),
    "descending sizes": ('[[cells]]\nfile = "a"\nshape = "x=9:1"', "line 3: .*that are not ascending"),
    "resources of a cell": (
        '[[cells]]\nfile = "a"\n[cells.ray]\n[[cells]]\nfile = "b"\n[cells.slurm]\ntime = 3',
        r"line 3: cells\[0\].ray: resources are those of all cells: write \[defaults.ray\]",
    ),
    "resources of the second cell": (
        '[[cells]]\nfile = "a"\n[[cells]]\nfile = "b"\n[cells.slurm] # of this\ntime = 3',
        r"line 5: cells\[1\].slurm: .* write \[defaults.slurm\]",
    ),
    "a control character": ('[[cells]]\nfile = "a\\u001b[2J"', r"line 2: cells\[0\].file: .* is not a text"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_matrix_is_one_error_with_line_and_key(case: str, tmp_path: Path) -> None:
    """Nothing is built of it."""
    text, message = WRONG[case]
    with pytest.raises(SettingsError, match=message) as raised:
        read_matrix(_matrix(tmp_path, text))
    assert str(raised.value).startswith(str(tmp_path / "matrix.toml"))
    assert "\n" not in str(raised.value)


def test_ranges_are_read_as_they_are_written() -> None:
    """As Slurm writes the tasks of an array."""
    numbers = [0, 1, 2, 5, 7, 8]
    assert ranges(numbers) == "0-2,5,7-8"
    assert parse_ranges("0-2,5,7-8") == numbers
    for wrong in ("", "a", "3-1", "-1", "0-99999999"):
        with pytest.raises(ValueError):  # noqa: PT011  # the command has the message
            parse_ranges(wrong)
