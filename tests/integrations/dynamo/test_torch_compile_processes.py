"""``torch.compile(backend="trtcache")`` by its name, with real engines, in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.documents import python_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunPython

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[3] / "docs" / "integrations.md"

# Three blocks with weights of their own, a new batch size, a BatchNorm folded again, and new weights.
PROGRAM = """
import json, torch
from torch import nn
from trtcache.integrations import torch_compile

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
    def forward(self, x):
        return self.norm(self.conv(x)).relu()

class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            torch._dynamo.graph_break()
        return x

torch.manual_seed(SEED)
model, off = Blocks().eval(), []
compiled = torch.compile(model, backend="trtcache", dynamic=True)
with torch.inference_mode():
    for batch in (2, 5):
        x = torch.randn(batch, 4, 6, 6)
        off.append((compiled(x) - model(x)).abs().max().item())
with torch.no_grad():
    for block in model.blocks:
        block.norm.running_mean.add_(0.5)
    off.append((compiled(x) - model(x)).abs().max().item())
    model.load_state_dict(Blocks().state_dict(), assign=True)
    off.append((compiled(x) - model(x)).abs().max().item())
outcomes = [one.partitions[0].outcome for report in torch_compile.reports() for one in report.engines]
eager = [why for report in torch_compile.reports() for why in report.eager]
print(json.dumps({"off": max(off), "outcomes": outcomes, "eager": eager}))
"""


def _answer(run_python: RunPython, seed: int, **environ: str) -> dict[str, Any]:
    done = run_python(f"SEED = {seed}\n{PROGRAM}", **environ)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_second_process_builds_nothing(
    run_python: RunPython, tmp_path: Path, build_count: Callable[[Path], int]
) -> None:
    """Blocks, sizes, modes and weights of one architecture have one build; another process, of other weights, none."""
    root = tmp_path / "cache"
    first = _answer(run_python, 0, TRTCACHE_DIR=str(root))
    second = _answer(run_python, 1, TRTCACHE_DIR=str(root), TRTCACHE_FORBID_BUILD="1")
    assert build_count(root) == 1
    assert first["outcomes"].count("built") == 1
    assert set(second["outcomes"]) == {"hit"}
    for answer in (first, second):
        assert answer["eager"] == []
        assert answer["off"] < 1e-5


def test_the_documentation_runs(run_python: RunPython, tmp_path: Path) -> None:
    """The Python of docs/integrations.md about ``torch.compile`` runs as it stands, in its order."""
    section = DOCUMENT.read_text().partition("## torch.compile\n")[2].partition("\n## ")[0]
    blocks = python_blocks(section)
    assert len(blocks) == section.count("```python") > 0
    done = run_python("\n".join(blocks), TRTCACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert "1 engine, 1 set of weights" in done.stdout
