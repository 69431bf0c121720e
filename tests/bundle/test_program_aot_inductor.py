"""Programs with real packages: another process without the model's library, another level, no wider instructions."""

from __future__ import annotations

import copy
import io
import re
import shutil
import subprocess
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

import trtcache
from tests.bundle import fresh
from tests.bundle.programs import forms, same
from tests.effort import TORTURE
from tests.models import retrained
from tests.partition.parts import SOFTMAX, Attention, dynamic, inputs
from trtcache.bundle.export import export_program
from trtcache.target import host_flags

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

WIDE = re.compile(r"%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2\d|3[01])\b")
"""What only AVX-512 has: its wide registers, its masks, and the upper half of the others."""


class Model(nn.Module):
    """A model in two parts, whose packages another test has as well, with a library's output class."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.attention(x, mask), hidden_states=(x, mask))


GIVEN = inputs(3)


@pytest.fixture(scope="module")
def divided(engines: Path) -> trtcache.CompiledModule:
    """Two packages with a softmax between them."""
    said = {**SOFTMAX, "build_processes": 2}
    return trtcache.compile(Model(), GIVEN, dynamic_shapes=dynamic(), settings=said, cache=engines)


def test_a_fresh_environment_without_the_models_library_runs_it(
    divided: trtcache.CompiledModule, tmp_path: Path
) -> None:
    """Answers are equal bit for bit, before and after a refit from a file; the output has the library's names."""
    assert len(divided.report.partitions) == 2
    trtcache.export(divided, tmp_path / "program.pt2")
    other = retrained(Model())
    refitted = divided.with_weights(dict(other.state_dict()))
    fresh.write(tmp_path, GIVEN, divided(*GIVEN), other, refitted(*GIVEN))
    said = fresh.read(fresh.environment(tmp_path / "environment"), tmp_path)
    assert (said["equal"], said["refitted"], said["library"]) == (True, True, [])
    assert (said["kind"], said["names"]) == ("Output", ["last_hidden_state", "hidden_states"])


def test_where_the_library_is_its_class_comes_back(divided: trtcache.CompiledModule, tmp_path: Path) -> None:
    """A process that has imported the class gets it."""
    trtcache.export(divided, tmp_path / "program.pt2")
    output = trtcache.load(tmp_path / "program.pt2", trust="local-file")(*GIVEN)
    assert isinstance(output, BaseModelOutput)
    assert same(output, divided(*GIVEN))


def test_an_export_for_a_lower_level_is_a_build_for_it(tmp_path: Path, engines: Path) -> None:
    """It equals a module that was compiled for that level, and has no instruction of AVX-512."""
    if not {"avx2", "fma"} <= host_flags():
        pytest.skip("this processor is none of x86-64-v3")
    if torch.__version__ < "2.13":
        pytest.skip("Inductor of torch 2.11 has no option for levels")
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)).eval(), torch.randn(8, 64)
    module = trtcache.compile(model, (x,), target="x86-64-v3", cache=engines)
    program = torch.export.export(model, (x,))
    written = export_program(
        program,
        tmp_path / "program.pt2",
        engines="embed",
        targets=["x86-64-v3"],
        backend="auto",
        settings=trtcache.Settings(),
        cache=trtcache.Cache(engines),
        name="model",
    )
    assert written.targets == (module.report.target,)
    loaded = trtcache.load(tmp_path / "program.pt2", trust="local-file")
    assert torch.equal(loaded(x), module(x))
    code = _disassembled(loaded, tmp_path)
    assert "%ymm" in code
    assert WIDE.search(code) is None


def _disassembled(module: trtcache.CompiledModule, folder: Path) -> str:
    tool = shutil.which("objdump")
    if tool is None:
        pytest.skip("objdump is not here")
    entry: Any = module.origin.entries[0] if module.origin else None
    with zipfile.ZipFile(io.BytesIO(entry.read("engine"))) as package:
        (library,) = (name for name in package.namelist() if name.endswith(".so"))
        (folder / "library.so").write_bytes(package.read(library))
    done = subprocess.run([tool, "-d", str(folder / "library.so")], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.torture
@pytest.mark.skipif(not TORTURE, reason="make torture")
@pytest.mark.parametrize("name", sorted(forms()))
def test_every_form_is_run_with_packages(name: str, tmp_path: Path, engines: Path) -> None:
    """Loaded programs answer as the compiled modules do, bit for bit, changed buffers and inputs included."""
    form = forms()[name]
    shapes = {"dynamic_shapes": form.shapes} if form.shapes else {}
    asked: dict[str, Any] = {"backend": "aot_inductor", "settings": form.settings, "cache": engines, **shapes}
    module = trtcache.compile(form.model(), form.args, dict(form.kwargs), **asked)
    trtcache.export(module, tmp_path / "program.pt2")
    loaded = trtcache.load(tmp_path / "program.pt2", trust="local-file")
    for args in form.others or (form.args, form.args):
        mine, theirs = copy.deepcopy((args, dict(form.kwargs))), copy.deepcopy((args, dict(form.kwargs)))
        assert same((module(*mine[0], **mine[1]), mine), (loaded(*theirs[0], **theirs[1]), theirs))
