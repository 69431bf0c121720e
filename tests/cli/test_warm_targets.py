"""``trtcache warm`` for machines that this is not: GPUs that are not here, and lower levels of the processor."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_warm import FAST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

MATRIX = """
[[cells]]
file = "affine.pt2"
backend = "tensorrt_rtx"
target = ["sm_86", "sm_89"]

[[cells]]
file = "affine.pt2"
backend = "aot_inductor"
setting = [{fast}]
target = ["x86-64-v2", "x86-64-v3"]
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_a_machine_without_a_gpu_warms_for_several(
    run: Callable[..., Result], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT-RTX for each compute capability, AOTInductor for each level, each with a key of its own."""
    pytest.importorskip("tensorrt_rtx", reason="WAS NOT TRIED: tensorrt_rtx is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # of the processes that build
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(MATRIX.format(fast=FAST))
    assert file.parent == tmp_path
    done = run("warm", matrix, "-j", "2", "--json")
    assert [cell["outcome"] for cell in done.json["cells"]] == ["built"] * 4, done.err
    assert len({key for cell in done.json["cells"] for key in cell["keys"]}) == 4
    planned = run("warm", matrix, "--plan", "--json").json
    assert (planned["hit"], planned["expected_s"]) == (4, 0.0)
