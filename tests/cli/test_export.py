"""``trtcache export``: a program in a file, with its engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.config.signing_keys import SecretKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

X = torch.randn(3, 4)


def test_a_program_is_written_for_several_targets(
    run: Callable[..., Result], file: Path, tmp_path: Path, interpreter: str
) -> None:
    """It is loaded as any other, and its answers are the model's."""
    output = tmp_path / "out.pt2"
    targets = ("--target", "x86-64-v2", "--target", "x86-64")
    done = run("export", file, "-o", output, "--backend", interpreter, *targets, "--json")
    said = done.json
    assert (done.code, said["name"], said["engines"], said["files"]) == (0, "affine", 1, [str(output)])
    assert [label.rpartition(" ")[2] for label in said["targets"]] == ["x86-64-v2", "x86-64"]
    assert (said["size_bytes"], said["signer"]) == (output.stat().st_size, None)
    loaded = trtcache.load(output, trust="local-file")
    assert loaded.report.target.endswith("x86-64-v2")
    for one, other in zip(loaded(X), Affine()(X), strict=True):
        torch.testing.assert_close(one, other)


def test_sidecar_files_and_the_signer_are_printed(
    run: Callable[..., Result], file: Path, tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As text: a line for each file, and the signer."""
    SecretKey.generate("ci").write(tmp_path / "ci.key")
    monkeypatch.setenv("TRTCACHE_SIGNING_KEY", str(tmp_path / "ci.key"))
    done = run("export", file, "-o", tmp_path / "out.pt2", "--backend", interpreter, "--engines", "sidecar")
    rows = dict(map(tuple, done.rows))
    assert rows["signed by"] == "ci"
    assert rows["beside it"].endswith(".trtc")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--target", "x86-64-v33"), 2, "did you mean 'x86-64-v3'"),
        (("--engines", "pigeon"), 2, "is not one of"),
        (("--backend", "aot_inducter"), 2, "did you mean 'aot_inductor'"),
    ],
)
def test_what_is_impossible_is_refused(
    run: Callable[..., Result], file: Path, tmp_path: Path, args: tuple[str, ...], code: int, message: str
) -> None:
    """A target, a way or a backend that is unknown: nothing is written."""
    done = run("export", file, "-o", tmp_path / "out.pt2", *args)
    assert done.code == code
    assert message in done.err
    assert not (tmp_path / "out.pt2").exists()


def test_the_program_itself_and_other_files_are_refused(run: Callable[..., Result], file: Path, tmp_path: Path) -> None:
    """The output must not be the program, its directory must exist, and an ONNX file is rejected."""
    assert "choose another file" in run("export", file, "-o", file).err
    assert "there is no directory" in run("export", file, "-o", tmp_path / "no" / "out.pt2").err
    (tmp_path / "net.onnx").touch()
    done = run("export", tmp_path / "net.onnx", "-o", tmp_path / "out.pt2")
    assert (done.code, "trtcache build -o" in done.err) == (2, True)
