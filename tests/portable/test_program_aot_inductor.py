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
from tests.effort import TORTURE
from tests.portable import fresh
from tests.portable.programs import forms, same
from trtcache.target import host_flags

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

WIDE = re.compile(r"%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2\d|3[01])\b")
"""What only AVX-512 has: its wide registers, its masks, and the upper half of the others."""


class Model(nn.Module):
    """Two parts where its softmax is in torch, a buffer that no state_dict has, and a library's output class."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.query, self.out = nn.Embedding(50, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.register_buffer("positions", torch.randn(8, 16), persistent=False)

    def forward(self, ids: torch.Tensor) -> BaseModelOutput:
        hidden = self.embed(ids) + self.positions
        found = torch.softmax(self.query(hidden) @ hidden.transpose(1, 2), -1) @ hidden
        return BaseModelOutput(last_hidden_state=self.out(found), hidden_states=(hidden, found))


def _model(seed: int) -> Model:
    torch.manual_seed(seed)
    return Model().eval()


IDS = torch.arange(16).reshape(2, 8)


@pytest.fixture(scope="module")
def divided(engines: Path) -> trtcache.CompiledModule:
    """The model in parts: two packages with a softmax between them."""
    said = {"torch_executed_ops": ["aten.softmax"]}
    return trtcache.compile(_model(0), (IDS,), backend="aot_inductor", settings=said, cache=engines)


def test_a_fresh_environment_without_the_models_library_runs_it(
    divided: trtcache.CompiledModule, tmp_path: Path
) -> None:
    """Answers are equal bit for bit, before and after a refit from a file; the output has the library's names."""
    assert len(divided.report.partitions) == 2
    trtcache.export(divided, tmp_path / "program.pt2")
    other = _model(1)
    refitted = divided.with_weights(dict(other.state_dict()))
    fresh.write(tmp_path, (IDS,), divided(IDS), other, refitted(IDS))
    said = fresh.read(fresh.environment(tmp_path / "environment"), tmp_path)
    assert (said["equal"], said["refitted"], said["library"]) == (True, True, [])
    assert (said["kind"], said["names"]) == ("Output", ["last_hidden_state", "hidden_states"])


def test_where_the_library_is_its_class_comes_back(divided: trtcache.CompiledModule, tmp_path: Path) -> None:
    """A process that has imported the class gets it."""
    trtcache.export(divided, tmp_path / "program.pt2")
    output = trtcache.load(tmp_path / "program.pt2", trust="local-file")(IDS)
    assert isinstance(output, BaseModelOutput)
    assert same(output, divided(IDS))


def test_an_export_for_a_lower_level_is_a_build_for_it(tmp_path: Path, engines: Path) -> None:
    """It equals a module that was compiled for that level, and has no instruction of AVX-512."""
    if not {"avx2", "fma"} <= host_flags():
        pytest.skip("this processor is none of x86-64-v3")
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)).eval(), torch.randn(8, 64)
    module = trtcache.compile(model, (x,), backend="aot_inductor", cache=engines)
    trtcache.export(module, tmp_path / "program.pt2", target="x86-64-v3", cache=engines)
    loaded = trtcache.load(tmp_path / "program.pt2", trust="local-file")
    assert loaded.report.target.endswith("x86-64-v3")
    lower = trtcache.compile(model, (x,), backend="aot_inductor", target="x86-64-v3", cache=engines)
    assert lower.report.partitions[0].outcome == "hit"
    assert torch.equal(loaded(x), lower(x))
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
