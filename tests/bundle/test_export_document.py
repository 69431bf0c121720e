"""docs/export.md is true: its Python runs, its schema is the operator's, and its errors are those that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.documents import python_blocks
from trtcache import errors
from trtcache.backends import registry
from trtcache.runtime.operator import SCHEMA

if TYPE_CHECKING:
    import pytest

    from tests.conftest import RunPython

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
BLOCKS = python_blocks(TEXT)


def test_the_python_of_the_document_runs(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One block after the other, with an engine that is built in no time."""
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "_AUTO_ORDER", {"torch": (interpreter,)})
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == TEXT.count("```python") == 3
    for block in BLOCKS:
        exec(compile(block, "docs/export.md", "exec"), {"__name__": "__main__"})  # noqa: S102  # the document's own
    assert "x86-64-v2" in capsys.readouterr().out


def test_one_line_opens_a_program_where_trtcache_is_not(compiled: object, program: Path, run_python: RunPython) -> None:
    """The schema of the document is the operator's; a process that has only torch opens the file with it."""
    (schema,) = re.findall(r'^SCHEMA = "(.*)"$', BLOCKS[1], re.MULTILINE)
    assert schema == SCHEMA
    done = run_python(
        f"""
        import sys, torch
        torch.library.define("trtcache::execute_engine", {schema!r})
        program = torch.export.load({str(program)!r})
        print(len(program.graph_signature.user_inputs), sorted(program.state_dict), "trtcache" in sys.modules)
        """
    )
    assert done.stdout.splitlines()[-1:] == ["1 ['bias', 'weight'] False"], done.stderr


def test_every_error_of_a_programs_file_is_told() -> None:
    """With its exit code."""
    for name in re.findall(r"`(\w+Error)`", TEXT):
        assert issubclass(getattr(errors, name), errors.TrtcacheError)
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.ProgramFileError):
            assert f"`{kind.__name__}`" in TEXT
