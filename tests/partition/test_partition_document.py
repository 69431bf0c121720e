"""docs/partition.md is true: its Python runs; and real engines answer across cuts in a second process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.documents import python_blocks
from tests.partition.parts import SOFTMAX, Attention, dynamic, inputs
from trtcache.backends import registry

if TYPE_CHECKING:
    from tests.conftest import RunPython

TEXT = (Path(__file__).parents[2] / "docs" / "partition.md").read_text(encoding="utf-8")
BLOCKS = python_blocks(TEXT)
SECOND = """
    import torch, trtcache
    from tests.partition.parts import SOFTMAX, Attention, dynamic, inputs
    model = Attention()
    module = trtcache.compile(model, inputs(3), dynamic_shapes=dynamic(), cache={cache!r}, settings=SOFTMAX)
    given = inputs(4)
    torch.testing.assert_close(module(*given), model(*given), rtol=1e-5, atol=1e-5)
    print([one.outcome for one in module.report.partitions])
"""


def test_the_python_of_the_document_runs(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block by itself, with an engine that is built in no time."""
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path))
    monkeypatch.setattr(registry, "_AUTO_ORDER", {"torch": (interpreter,)})
    assert len(BLOCKS) == TEXT.count("```python") == 2
    for block in BLOCKS:
        exec(block, {"__name__": "document"})  # noqa: S102  # the document's own code
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["2 engines", "aten.softmax.int in torch: torch_executed_ops has aten.softmax.int"]
    assert printed[2].startswith("custom operator mylib::double can change")


@pytest.mark.slow
def test_packages_are_hits_in_a_second_process(
    engines: Path, run_python: RunPython, caplog: pytest.LogCaptureFixture
) -> None:
    """With a batch that varies across the cuts; other processes have built them, whose programs have the same keys."""
    settings = {**SOFTMAX, "build_processes": 2}
    with caplog.at_level(logging.INFO):
        module = trtcache.compile(Attention(), inputs(3), dynamic_shapes=dynamic(), cache=engines, settings=settings)
    assert "built in this process" not in caplog.text
    assert "it is built here" not in caplog.text
    if [one.outcome for one in module.report.partitions] == ["built", "built"]:  # not if another test built them
        assert module.report.overlapped_s > 0
        assert module.report.overhead_s > 0
    for batch in (2, 9):
        given = inputs(batch)
        torch.testing.assert_close(module(*given), Attention()(*given), rtol=1e-5, atol=1e-5)
    done = run_python(SECOND.format(cache=str(engines)), TRTCACHE_FORBID_BUILD="1")
    assert done.stdout == "['hit', 'hit']\n", done.stderr
