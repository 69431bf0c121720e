"""docs/sync.md: what it shows of commands is what they print, and its Python runs."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from tests.documents import ROOT, shape
from tests.integrations.foreign_caches.layouts import onnxruntime_cache, torch_tensorrt_cache
from tests.store.sources import fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from .conftest import Result

_TEXT = (ROOT / "docs" / "sync.md").read_text()
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_each_command_prints_what_is_shown(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two entries on a stick go to a server's store, and two caches of other tools are looked at."""
    fill(tmp_path / "mnt", 2)
    onnxruntime_cache(tmp_path / "trt_cache")
    torch_tensorrt_cache(tmp_path / "engine_cache")
    monkeypatch.chdir(tmp_path)
    here = {"/mnt/usb/engines": str(tmp_path / "mnt"), "/srv/engines": str(tmp_path / "srv")}
    for kind, block in _BLOCK.findall(_TEXT):
        for place, replaced in here.items():
            block = block.replace(place, replaced)
        if kind == "python":
            exec(compile(block, "docs/sync.md", "exec"), {})  # noqa: S102  # the document's
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip().splitlines()
            words = shlex.split(command)
            while "=" in words[0]:
                monkeypatch.setenv(*words.pop(0).split("=", 1))
            done = run(*words[1:])
            # The caches of other tools have damaged engines.
            assert done.code == (4 if words[1] == "adopt" else 0), (command, done.err)
            printed = [shape(line) for line in (done.err + done.out).splitlines()]
            assert [line for line in shown if line != "..." and shape(line) not in printed] == [], (command, printed)
            assert "..." in shown or len(printed) == len(shown), command
