"""``trtcache infer``: a program in a file is called, with torch and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from click import ClickException

import trtcache
from tests.bundle.plain_models import FAST
from tests.models import Affine
from trtcache_cli import infer as command

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Result

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def exported(interpreter: str, tmp_path: Path) -> Path:
    """A program whose engine needs torch, and its input ``x.npy``."""
    x = torch.randn(3, 4)
    module = trtcache.compile(Affine(), (x,), backend=interpreter, cache=tmp_path / "cache")
    trtcache.export(module, tmp_path / "program.pt2")
    np.save(tmp_path / "x.npy", x.numpy())
    return tmp_path / "program.pt2"


def test_outputs_are_written_in_order(run: Callable[..., Result], exported: Path, tmp_path: Path) -> None:
    """By name or position; ``--json`` has dtypes, shapes, files and percentiles."""
    x = tmp_path / "x.npy"
    for name in ("x", "0"):
        files = (tmp_path / f"{name}-first.npy", tmp_path / f"{name}-second.npy")
        options = ("--trust", "local-file", "--output", files[0], "-o", files[1], "--repeat", "5", "--json")
        done = run("infer", exported, "--input", f"{name}={x}", *options)
        assert done.code == 0, done.err
        found = done.json
        assert [one["file"] for one in found["outputs"]] == [str(file) for file in files]
        assert [one["shape"] for one in found["outputs"]] == [[3, 4], [4]]
        assert (found["name"], found["torch"], found["repeat"]) == ("Affine", "imported", 5)
        latencies = list(found["latency_s"].values())
        assert list(found["latency_s"]) == ["min", "p50", "p90", "p99", "max"]
        assert latencies == sorted(latencies)
        expected = Affine()(torch.from_numpy(np.load(x)))
        for file, output in zip(files, expected, strict=True):
            np.testing.assert_allclose(np.load(file), output.detach().numpy(), rtol=1e-5)


def test_what_is_wrong_is_one_line(run: Callable[..., Result], exported: Path, tmp_path: Path) -> None:
    """A missing file, a malformed argument, too many outputs, no trust, and a bad shape, each with its exit code."""
    x, trusted = tmp_path / "x.npy", ("--trust", "local-file")
    (tmp_path / "empty.npy").touch()
    np.save(tmp_path / "wide.npy", np.ones((3, 5), np.float32))
    np.save(tmp_path / "text.npy", np.array(["a"]))
    for arguments, code, words in (
        (("-i", f"x={tmp_path / 'none.npy'}", *trusted), 2, "none.npy"),
        (("-i", "x", *trusted), 2, "is not NAME=VALUE"),
        (("-i", f"1={x}", *trusted), 2, "position 0 is missing; given: 1"),
        (("-i", f"0={x}", "-i", f"2={x}", *trusted), 2, "position 1 is missing; given: 0, 2"),
        (
            ("-i", f"x={x}", *trusted, *(part for n in range(3) for part in ("-o", tmp_path / f"{n}.npy"))),
            2,
            "for 2 outputs",
        ),
        (("-i", f"x={x}", *trusted, "-o", tmp_path / "no" / "y.npy"), 2, "there is no directory"),
        (("-i", f"x={x}"), 3, "no trusted signature"),
        (("-i", f"x={x}"), 3, "trtcache infer --trust local-file"),
        (("-i", f"x={tmp_path / 'empty.npy'}", *trusted), 2, "empty.npy: No data left"),
        (("-i", f"x={x}", "-i", "x=3", *trusted), 2, "'x' is given twice"),
        (("-i", f"x={x}", *trusted, "-o", x), 2, "is an input; choose another file"),
        (("-i", f"x={x}", *trusted, "-o", exported), 2, "is the program; choose another file"),
        (("-i", f"x={x}", *trusted, *("-o", tmp_path / "y.npy") * 2), 2, "y.npy is given twice"),
        (trusted, 1, "give each with --input: by name, positional ones by position from 0"),
        (("-i", f"x={tmp_path / 'wide.npy'}", *trusted), 1, "expected shape (3, 4)"),
        (("-i", "x=x.npz", *trusted), 1, "got 'x.npz' (str); it was read as text: an array is a .npy file"),
        (("-i", f"x={tmp_path / 'text.npy'}", *trusted), 2, "'x' is an array of str32, which torch does not have"),
    ):
        done = run("infer", exported, *arguments)
        assert (done.code, len(done.err.splitlines())) == (code, 1), done.err
        assert words in done.err


def test_percentiles_are_nearest_ranks() -> None:
    """As those of tune and stats are."""
    found = command._percentiles([1.0, 2.0, 3.0, 4.0])
    assert found == {"min": 1.0, "p50": 2.0, "p90": 4.0, "p99": 4.0, "max": 4.0}


def test_another_byte_order_is_read(run: Callable[..., Result], exported: Path, tmp_path: Path) -> None:
    """With torch as without, where it is copied too."""
    x = np.load(tmp_path / "x.npy")
    files = (tmp_path / "first.npy", tmp_path / "second.npy")
    for order, file in zip("<>", files, strict=True):
        np.save(tmp_path / "x.npy", x.astype(f"{order}f4"))
        done = run("infer", exported, "--trust", "local-file", "-i", f"x={tmp_path / 'x.npy'}", "-o", file)
        assert done.code == 0, done.err
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
def test_the_command_does_not_import_torch(engines: Path, tmp_path: Path) -> None:
    """With a package for the CPU; the output's bits are the module's, and values are JSON."""
    x = torch.randn(3, 4)
    module = trtcache.compile(torch.nn.Linear(4, 4), (x,), settings=FAST, cache=engines)
    trtcache.export(module, tmp_path / "program.pt2")
    np.save(tmp_path / "x.npy", x.numpy())
    command = [sys.executable, "-m", "trtcache_cli", "infer", str(tmp_path / "program.pt2"), "--json"]
    command += ["--trust", "local-file", "--input", f"0={tmp_path / 'x.npy'}", "--output", str(tmp_path / "y.npy")]
    path = os.pathsep.join(str(PROJECT / one) for one in (".", "cli", "migrations"))
    environment = os.environ | {"TRTCACHE_NO_TORCH": "1", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["torch"] == "not used"
    assert np.load(tmp_path / "y.npy").tobytes() == module(x).numpy().tobytes()


class Half(torch.nn.Module):
    """A sum in bfloat16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_bfloat16_is_read_as_it_is_written(run: Callable[..., Result], interpreter: str, tmp_path: Path) -> None:
    """A .npy file has no such dtype: its numbers are two bytes each."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = torch.randn(3, 4).bfloat16()
    module = trtcache.compile(Half(), (x,), backend=interpreter, cache=tmp_path / "cache")
    trtcache.export(module, tmp_path / "program.pt2")
    first, second = tmp_path / "first.npy", tmp_path / "second.npy"
    np.save(first, x.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    options = ("--trust", "local-file", "--json")
    done = run("infer", tmp_path / "program.pt2", "--input", f"x={first}", "--output", second, *options)
    assert (done.code, done.err) == (0, "")
    assert done.json["outputs"][0]["dtype"] == "bfloat16"
    found = torch.from_numpy(np.load(second).view("int16").copy()).view(torch.bfloat16)
    assert torch.equal(found, x + 1)


class Extremes(torch.nn.Module):
    """Results in a class of torch, sizes, None and text."""

    def forward(self, x: torch.Tensor) -> Any:
        return torch.max(x, 1), x.shape, None, "text", x * 2


def test_a_class_of_torch_has_all_its_outputs(run: Callable[..., Result], interpreter: str, tmp_path: Path) -> None:
    """The results of ``torch.max`` are two files, and the outputs after them keep their places."""
    x = torch.arange(12.0).reshape(3, 4)
    module = trtcache.compile(Extremes(), (x,), backend=interpreter, cache=tmp_path / "cache")
    trtcache.export(module, tmp_path / "program.pt2")
    np.save(tmp_path / "x.npy", x.numpy())
    files = [tmp_path / f"{place}.npy" for place in range(5)]
    outputs = [part for file in files for part in ("-o", file)]
    done = run("infer", tmp_path / "program.pt2", "--trust", "local-file", "-i", f"x={tmp_path / 'x.npy'}", *outputs)
    assert done.code == 0, done.err
    found = [np.load(file).tolist() for file in files]
    assert found == [[3, 7, 11], [3, 3, 3], 3, 4, (x * 2).tolist()]


def test_an_unknown_output_is_an_error() -> None:
    """It is not left out, which would move the outputs after it."""
    with pytest.raises(ClickException, match="an output has the type object, which is not an array"):
        command._arrays([np.ones(2), object(), np.ones(3)])
