"""docs/direct-mode.md is true: its Python runs, and prints what its comments say."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import trtcache
from tests.documents import python_blocks

if TYPE_CHECKING:
    import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "direct-mode.md").read_text(encoding="utf-8")
BLOCKS = python_blocks(TEXT)


def test_the_python_of_the_document_prints_what_it_says(
    interpreter: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All blocks, in their order, as a script; engines are the interpreter's."""
    assert len(BLOCKS) == TEXT.count("```python") == 2
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRTCACHE_DIRECT", "on")
    monkeypatch.setattr(trtcache, "compile", functools.partial(trtcache.compile, backend=interpreter))
    script, module = tmp_path / "script.py", ModuleType("script")
    script.write_text("\n".join(BLOCKS))
    module.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "script", module)
    exec(compile(script.read_text(), str(script), "exec", dont_inherit=True), vars(module))  # noqa: S102  # the document's own code
    said = re.findall(r"^.*print\(.*\)  # (.*)$", script.read_text(), re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said
