"""Programs without torch on a machine with a GPU: those for the CPU run there, those for CUDA import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

import trtcache

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunPython

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU; torch sees none"),
]


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).eval()


def test_a_program_for_the_cpu_needs_no_torch_here(engines: Path, tmp_path: Path, run_fresh_python: RunPython) -> None:
    """``libtorch_cpu.so`` of a build for CUDA loads without ``import torch``, and answers bit for bit."""
    x = torch.randn(3, 16)
    module = trtcache.compile(_model(), (x,), cache=engines)
    trtcache.export(module, tmp_path / "program.pt2")
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "y.npy", module(x).numpy())
    done = run_fresh_python(f"""
        import sys
        import numpy as np
        import trtcache

        program = trtcache.load({str(tmp_path / "program.pt2")!r}, trust="local-file")
        assert "torch" not in sys.modules, program.report
        made = program(np.load({str(tmp_path / "x.npy")!r}))
        assert "torch" not in sys.modules, program.report
        assert made.tobytes() == np.load({str(tmp_path / "y.npy")!r}).tobytes()
        import torch
        assert torch.cuda.is_available()
        assert (torch.ones(2, device="cuda") * 2).sum().item() == 4
        """)
    assert done.returncode == 0, done.stderr


def test_a_program_for_cuda_imports_torch_and_says_so(
    engines: Path, tmp_path: Path, run_fresh_python: RunPython
) -> None:
    """Its report has the reason, and its answers are the module's."""
    x = torch.randn(3, 16, device="cuda")
    module = trtcache.compile(_model().cuda(), (x,), cache=engines)
    trtcache.export(module, tmp_path / "program.pt2")
    torch.save((x.cpu(), module(x).cpu()), tmp_path / "expected.pt")
    done = run_fresh_python(f"""
        import trtcache

        module = trtcache.load({str(tmp_path / "program.pt2")!r}, trust="local-file")
        assert module.report.torch.startswith("it has an engine for cuda"), module.report
        import torch

        x, expected = torch.load({str(tmp_path / "expected.pt")!r})
        assert torch.equal(module(x.cuda()).cpu(), expected)
        """)
    assert done.returncode == 0, done.stderr
