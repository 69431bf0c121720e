"""Direct mode for models on a GPU, in new processes: torch settles some of its state at the first use of CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunPython

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU; torch sees none"),
]

_MODEL = """
import torch


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(64, 192)

    def forward(self, x):
        query, key, value = self.project(x).view(1, 8, 4, 48).transpose(1, 2).chunk(3, -1)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)
"""
_COMPILE = """
import sys

sys.path.insert(0, {folder!r})
import torch
from attention_model import Attention

import trtcache

model, x = Attention().cuda().eval(), torch.randn(1, 8, 64, device="cuda")
module = trtcache.compile(model, (x,), direct="on", cache={cache!r})
with torch.no_grad():
    assert (module(x) - model(x)).abs().max() < 1e-3
print(module.report.direct)
"""
_READ = """
import sys

sys.path.insert(0, {folder!r})
import torch
from tuned_model import Tuned

import trtcache

torch.cuda.tunable.enable({enabled})
model, x = Tuned(), torch.ones(2)
module = trtcache.compile(model, (x,), direct="on", cache={cache!r})
assert torch.equal(module(x), x * (2 if {enabled} else 3)), module(x)
print(module.report.direct)
"""


def test_attention_on_a_gpu_is_a_direct_hit(tmp_path: Path, run_fresh_python: RunPython) -> None:
    """The first export of a process chooses an order of attention kernels; the next process has the same direct key."""
    (tmp_path / "attention_model.py").write_text(_MODEL)
    code = _COMPILE.format(folder=str(tmp_path), cache=str(tmp_path / "cache"))
    first, second = run_fresh_python(code), run_fresh_python(code)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout.startswith("miss"), first.stdout
    assert second.stdout.strip() == "hit", second.stdout


@pytest.mark.parametrize(
    ("imported", "read"),
    [
        ("import torch", "torch.cuda.tunable.is_enabled()"),
        ("from torch.cuda.tunable import is_enabled", "is_enabled()"),
        ("import torch", "torch._C._cuda_tunableop_is_enabled()"),
    ],
)
def test_code_that_reads_settings_of_tunable_operators_gets_their_program(
    tmp_path: Path, run_fresh_python: RunPython, imported: str, read: str
) -> None:
    """Its operations are compared, in processes where reading one of them starts CUDA: another setting is a miss."""
    (tmp_path / "tuned_model.py").write_text(
        f"{imported}\nimport torch\n\n\nclass Tuned(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return x * (2 if {read} else 3)\n"
    )
    given = {"folder": str(tmp_path), "cache": str(tmp_path / "cache")}
    found = []
    for enabled in (False, False, True, True):
        done = run_fresh_python(_READ.format(enabled=enabled, **given))
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.partition(":")[0].strip())
    assert found == ["miss", "hit", "miss", "hit"]
