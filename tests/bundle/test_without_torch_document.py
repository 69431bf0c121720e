"""docs/without-torch.md is true: its Python runs, with a real package and in a process without torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import python_blocks

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "without-torch.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_its_python_runs(tmp_path: Path, engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block exports a model, and calls it in a process that does not import torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRTCACHE_DIR", str(engines))
    monkeypatch.setenv("PYTHONPATH", ":".join(str(ROOT / one) for one in (".", "cli", "migrations")))
    (block,) = python_blocks(TEXT)
    exec(compile(block, "docs/without-torch.md", "exec"), {"__name__": "__main__"})  # noqa: S102  # the document's own
