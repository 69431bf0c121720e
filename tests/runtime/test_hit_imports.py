"""A hit imports neither sympy, nor lowering, nor what builds: in new processes, for a module and for a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT = """
import json, sys
import torch
before = set(sys.modules)
import trtcache
from network import Network

model, x = Network().eval(), torch.ones(2, 8)
with torch.no_grad():
    if sys.argv[1] == "prepare":
        torch.export.save(torch.export.export(model, (x,), strict=False), "network.pt2")
    for source in {"prepare": ("module", "file"), "file": ("file",), "module": ("module",)}[sys.argv[1]]:
        module = trtcache.compile(model, (x,)) if source == "module" else trtcache.compile("network.pt2")
        module(x)
report = module.report
print(json.dumps({
    "route": report.route, "outcome": report.partitions[0].outcome, "import_s": report.import_s, "text": str(report),
    "modules": sorted(set(sys.modules) - before),
}))
"""
_NETWORK = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.layer(x)).relu()
"""
# Everything that exports, lowers or builds, and SQLAlchemy; each of them takes 5 ms to seconds.
_FOR_MISSES = (
    *("sympy", "sqlalchemy", "difflib", "torch._inductor", "torch._dynamo", "torch.onnx", "torch._export.serde"),
    *("torch.fx.experimental.symbolic_shapes", "trtcache.lowering.stages", "trtcache.lowering.rewriting"),
    *("trtcache.lowering.capture", "trtcache.partition.partitions", "trtcache.partition.extract"),
    *(
        "trtcache.compiler.entries",
        "trtcache.runtime.executor",
        "trtcache.frontends.request",
    ),
    *("trtcache.backends.aot_inductor.build", "trtcache.keys.explain", "trtcache.keys.graph_digest"),
)


def _run(folder: Path, way: str) -> dict[str, Any]:
    places = {"TRTCACHE_DIR": str(folder / "cache"), "TRTCACHE_DIRECT": "on"}
    path = os.pathsep.join((str(folder), *sys.path))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT, way],
        cwd=folder,
        env={**os.environ, **places, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network, its program's file, and a cache that has the engine and both aliases."""
    folder = tmp_path_factory.mktemp("imports")
    (folder / "network.py").write_text(_NETWORK)
    _run(folder, "prepare")
    return folder


@pytest.mark.parametrize(("way", "route"), [("module", "direct"), ("file", "alias")])
def test_a_hit_imports_what_a_hit_needs(prepared: Path, way: str, route: str) -> None:
    """Nothing that exports, lowers or builds is imported, and the report has the seconds of what is."""
    found = _run(prepared, way)
    assert (found["route"], found["outcome"]) == (route, "hit")
    assert [name for name in found["modules"] if name in _FOR_MISSES] == []
    assert 0 < found["import_s"] < 60
    assert "  imports " in found["text"]
