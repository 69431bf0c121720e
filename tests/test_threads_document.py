"""docs/threads.md is true: its Python runs, and the command prints what is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.documents import console, python_blocks, shape
from trtcache_cli.threads import in_this_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = (Path(__file__).parents[1] / "docs" / "threads.md").read_text(encoding="utf-8")
BLOCKS = python_blocks(TEXT)


@pytest.mark.slow
def test_the_python_of_the_document_runs(
    engines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All blocks, in their order, with nothing but what they say."""
    monkeypatch.setenv("TRTCACHE_DIR", str(engines))
    assert len(BLOCKS) == TEXT.count("```python") == 3
    exec("\n".join(BLOCKS), {})  # noqa: S102  # the document's own code
    printed = capsys.readouterr().out
    assert printed.startswith("torch.Size([16, 8]) 100\n2 runners, 1 threads for each call (runners), ")
    assert "calls run in parallel" in printed


def test_the_command_prints_what_the_document_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and meanings; numbers are the machine's."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    ((_, *shown),) = console("docs/threads.md")["trtcache threads"]
    printed = [shape(" ".join(line)) for line in _fields()]
    assert [
        re.sub(r"<number>|cores (?=concurrent)|OMP_NUM_THREADS (?=intra-op)", "", shape(line)).split() for line in shown
    ] == [re.sub(r"<number>", "", line).split() for line in printed]


def _fields() -> Iterator[list[str]]:
    for line in in_this_environment():
        origin = "" if line.meaning and line.name in {"intra", "inter"} else line.origin
        yield [line.name, str(line.value), origin, line.meaning]
