"""Programs with packages for CUDA: written here, and loaded by a second process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from trtcache.backends import fitness
from trtcache.errors import NoFittingEngineError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunPython

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU; torch sees none"),
]


class Model(nn.Module):
    """Two parts where its softmax is in torch, and a buffer that no state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(16, 16), nn.Linear(16, 16)
        self.register_buffer("positions", torch.randn(8, 16), persistent=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = x + self.positions
        found = torch.softmax(self.query(hidden) @ hidden.transpose(1, 2), -1) @ hidden
        return self.out(found), found


@pytest.mark.parametrize("engines", ["embed", "sidecar"])
@pytest.mark.parametrize("settings", [{}, {"torch_executed_ops": ["aten.softmax"]}], ids=["whole", "parts"])
def test_a_second_process_loads_and_refits_what_this_one_wrote(
    engines: str, settings: dict[str, list[str]], tmp_path: Path, run_python: RunPython
) -> None:
    """Answers are equal bit for bit, before and after a refit with a state_dict."""
    torch.manual_seed(0)
    model, x = Model().eval().cuda(), torch.randn(2, 8, 16, device="cuda")
    module = trtcache.compile(model, (x,), settings=settings, cache=tmp_path / "cache")
    trtcache.export(module, tmp_path / "program.pt2", engines=engines)
    other = {name: one * 2 for name, one in model.state_dict().items()}
    expected, refitted = module(x), module.with_weights(other)(x)
    torch.save({"x": x, "other": other, "expected": expected, "refitted": refitted}, tmp_path / "values")
    done = run_python(
        f"""
        import torch, trtcache
        said = torch.load({str(tmp_path / "values")!r}, weights_only=True)
        module = trtcache.load({str(tmp_path / "program.pt2")!r}, trust="local-file")
        same = [torch.equal(*pair) for pair in zip(module(said["x"]), said["expected"])]
        module.refit(said["other"])
        print(same, [torch.equal(*pair) for pair in zip(module(said["x"]), said["refitted"])], module.report.target)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("[True, True] [True, True] cuda sm_")


def test_another_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package has kernels for one compute capability; the GPU's facts are faked here."""
    model, x = nn.Linear(4, 4).cuda(), torch.randn(3, 4, device="cuda")
    trtcache.export(trtcache.compile(model, (x,), cache=tmp_path / "cache"), tmp_path / "program.pt2")
    monkeypatch.setattr(fitness, "gpu_here", lambda: None)
    with pytest.raises(NoFittingEngineError, match="and the GPU here is none"):
        trtcache.load(tmp_path / "program.pt2", trust="local-file")
