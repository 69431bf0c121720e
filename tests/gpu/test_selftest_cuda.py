"""``trtcache selftest`` on a CUDA device, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU; torch sees none"),
]


def test_every_step_passes_on_cuda(tmp_path: Path) -> None:
    """Build, hit, run, refit, damage and version, with the GPU named in the report, and nothing left behind."""
    command = [
        sys.executable,
        "-m",
        "trtcache_cli",
        "selftest",
        "--backend",
        "aot_inductor",
        "--device",
        "cuda",
        "--json",
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert {one["step"]: one["status"] for one in found["steps"]} == dict.fromkeys(
        ("environment", "build", "hit", "run", "refit", "damage", "version"), "ok"
    )
    assert torch.cuda.get_device_name() in found["report"]
    assert not [*tmp_path.glob("trtcache*")]
