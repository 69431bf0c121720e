"""Direct hits of new processes: from any folder, with any hash seed, and without what exports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
NOT_NEEDED = ("torch.export._trace", "torch._inductor", "torch._dynamo", "sympy", "sqlalchemy", "alembic", "rich")
MODEL = """
import torch


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4))
        self.labels = ["a", "b", "c"]

    def forward(self, x):
        return x * self.weight + len(self.labels)
"""
PROGRAM = f"""
import json, sys
import torch, trtcache
from scalepkg import Scale

x, model = torch.arange(12.0).reshape(3, 4), Scale()
before = set(sys.modules)
module = trtcache.compile(model, (x,), direct="on")
right = torch.equal(module(x), model(x))
added = [name for name in {NOT_NEEDED!r} if name in set(sys.modules) - before]
print(json.dumps([module.report.direct, right, added]))
"""


def answer(done: Any) -> list[Any]:
    """Return what the program printed."""
    assert done.returncode == 0, done.stderr
    said: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_a_new_process_hits_and_imports_nothing_that_exports(
    run_fresh_python: Callable[..., Any], tmp_path: Path, engines: Path
) -> None:
    """It has another hash seed, another copy of the package, and weights of its own."""
    seen = []
    for seed, name in (("1", "one"), ("2", "two")):
        folder = tmp_path / name / "scalepkg"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(MODEL)
        environ = {"PYTHONPATH": f"{PROJECT}:{folder.parent}", "PYTHONHASHSEED": seed, "TRTCACHE_DIR": str(engines)}
        seen.append(answer(run_fresh_python(PROGRAM, **environ)))
    assert [direct for direct, _, _ in seen] == ["miss: no matching manifest", "hit"]
    assert all(right for _, right, _ in seen)
    assert seen[1][2] == []


@pytest.mark.parametrize("way", ["-c", "standard input"])
def test_programs_without_a_file(engines: Path, tmp_path: Path, way: str) -> None:
    """``python -c`` and a program from standard input hit as one of a file does; an edited class misses."""
    program = f"{MODEL}\n{PROGRAM.replace('from scalepkg import Scale', '')}".replace("len(self.labels)", str(len(way)))
    edited = program.replace("self.weight +", "self.weight -")
    seen = [answer(_run_without_a_file(way, text, engines, tmp_path)) for text in (program, program, edited)]
    assert [direct.split(":")[0] for direct, _, _ in seen] == ["miss", "hit", "miss"], seen
    assert all(right for _, right, _ in seen)


def _run_without_a_file(way: str, text: str, engines: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    given = ("-c", text) if way == "-c" else ()
    environ = {**os.environ, "PYTHONPATH": str(PROJECT), "TRTCACHE_DIR": str(engines)}
    command, typed = [sys.executable, *given], "" if given else text
    return subprocess.run(command, input=typed, cwd=folder, env=environ, capture_output=True, text=True, check=False)
