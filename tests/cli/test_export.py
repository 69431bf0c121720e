"""``trtcache export``: a program in a file, with its engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.config.signing_keys import SecretKey
from trtcache.errors import InputError
from trtcache.frontends.exported import signature_of

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


class Structures(torch.nn.Module):
    """A model with every kind of argument."""

    def forward(
        self,
        X: torch.Tensor,  # noqa: N803  # torch's own names are in lower case
        state: dict[str, Any],
        *rest: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a sum in which no two arguments count alike."""
        total: torch.Tensor = X + 2 * state["a"] + 3 * state["b"][0]
        for number, one in enumerate(rest):
            total = total + (number + 4) * one
        return total if bias is None else total - bias


ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "by position": ((X, {"a": X + 1, "b": (X + 2,)}), {}),
    "several": ((X, {"a": X + 1, "b": (X + 2,)}, X + 3, X + 4), {"bias": X + 5}),
    "by name": ((), {"state": {"a": X + 1, "b": (X + 2,)}, "X": X}),
}


@pytest.mark.parametrize("how", ARGUMENTS)
def test_arguments_have_the_names_of_the_model(
    run: Callable[..., Result], tmp_path: Path, interpreter: str, how: str
) -> None:
    """As in a program that was exported from the module; by position the call is as before."""
    (args, kwargs), model = ARGUMENTS[how], Structures()
    torch.export.save(torch.export.export(model, args, kwargs), tmp_path / "model.pt2")
    output = tmp_path / "out.pt2"
    assert run("export", tmp_path / "model.pt2", "-o", output, "--backend", interpreter).code == 0
    loaded = trtcache.load(output, trust="local-file")
    expected = model(*args, **kwargs)
    torch.testing.assert_close(loaded(*args, **kwargs), expected)
    if how != "several":
        by_name = kwargs or dict(zip(("X", "state"), args, strict=True))
        torch.testing.assert_close(loaded(**dict(reversed(by_name.items()))), expected)
        trtcache.export(trtcache.compile(model, args, kwargs, backend=interpreter), tmp_path / "module.pt2")
        from_module = trtcache.load(tmp_path / "module.pt2", trust="local-file")
        torch.testing.assert_close(from_module(**by_name), expected)
    with pytest.raises(InputError, match="x"):
        loaded(*args, **kwargs, x=X)


def test_a_program_without_names_takes_positions(
    run: Callable[..., Result], file: Path, tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documented command works with names; a file that has none says how to give an argument."""
    np.save(tmp_path / "x.npy", X.numpy())
    output, trusted = tmp_path / "out.pt2", ("--trust", "local-file")
    assert run("export", file, "-o", output, "--backend", interpreter).code == 0
    assert run("infer", output, *trusted, "--input", f"x={tmp_path / 'x.npy'}").code == 0
    monkeypatch.setattr("trtcache.bundle.export.signature_of", lambda _program: None)
    assert run("export", file, "-o", output, "--backend", interpreter).code == 0
    assert "--input 0=x.npy" in run("infer", output, *trusted, "--input", f"x={tmp_path / 'x.npy'}").err
    assert run("infer", output, *trusted, "--input", f"0={tmp_path / 'x.npy'}").code == 0


@pytest.mark.parametrize("names", [None, ["x", "y"], ["x.y"], ["x", "x"]])
def test_names_that_do_not_fit_are_none(names: list[str] | None) -> None:
    """Neither missing names, nor too many, nor what is no name of Python."""
    program = torch.export.export(Affine(), (X,))
    signature = program.module_call_graph[0].signature
    assert signature is not None
    assert list(signature_of(program).parameters) == ["x"]  # type: ignore[union-attr]
    signature.forward_arg_names = names
    assert signature_of(program) is None


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
