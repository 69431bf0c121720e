"""Programs that torch_tensorrt cross-compiles are read, and nothing of them is unpickled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.bundle import cross_compiled
from trtcache.bundle.torch_tensorrt import TensorSpec, engines_in
from trtcache.errors import NotAProgramError, ProgramContentError, TruncatedProgramError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("as_tensor", [False, True], ids=["text", "tensor"])
def test_engines_and_their_borders_are_read(tmp_path: Path, as_tensor: bool) -> None:
    """The plan, names, dtypes and sizes, the GPU and the platform; the metadata would end this process."""
    cross_compiled.write(tmp_path / "program.pt2", as_tensor=as_tensor)
    (engine,) = engines_in(tmp_path / "program.pt2")
    assert (bytes(engine.plan), engine.name, engine.abi) == (cross_compiled.PLAN, "_run_on_acc_0_engine", "10")
    assert [one.name for one in engine.inputs] == ["x", "y"]
    batch = engine.inputs[0].shape[0]
    assert isinstance(batch, str)
    assert engine.outputs == (TensorSpec("output0", "float32", (batch, 4)),)
    assert engine.device == {"index": "0", "capability": "8.9", "name": "NVIDIA L4"}
    assert (engine.platform, engine.hardware_compatible, engine.metadata_bytes > 0) == ("windows_x86_64", False, True)
    assert "serialized_metadata" not in engine.other
    assert "ftrt" not in repr(engine)


def test_load_says_that_it_is_not_one_of_ours(tmp_path: Path) -> None:
    """Such a program has no verified engine for this process."""
    cross_compiled.write(tmp_path / "program.pt2")
    with pytest.raises(NotAProgramError):
        trtcache.load(tmp_path / "program.pt2", trust="local-file")


def test_other_programs_have_no_such_engines(tmp_path: Path) -> None:
    """A program without such a call, a file that is cut off, and a graph that is otherwise."""
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), tmp_path / "plain.pt2")
    with pytest.raises(NotAProgramError, match="it calls no tensorrt"):
        engines_in(tmp_path / "plain.pt2")
    cross_compiled.write(tmp_path / "program.pt2")
    content = (tmp_path / "program.pt2").read_bytes()
    (tmp_path / "program.pt2").write_bytes(content[: len(content) // 2])
    with pytest.raises(TruncatedProgramError):
        engines_in(tmp_path / "program.pt2")
    for old, new in ((b'"tensor_values"', b'"tensor_valuez"'), (b'"x%y"', b'"x y"')):
        assert old in content
        (tmp_path / "program.pt2").write_bytes(content.replace(old, new))
        with pytest.raises(ProgramContentError):
            engines_in(tmp_path / "program.pt2")
