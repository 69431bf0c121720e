"""What README.md, docs/overview.md and docs/integrations.md show of commands is what the commands print."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.documents import console, plain, shape
from trtcache.cache import Cache
from trtcache.digests import CacheKey
from trtcache_cli import demo
from trtcache_cli.demo_result import StepResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.store.disk import DiskStore

    from .conftest import Result

OVERVIEW = console("docs/overview.md")
SHOWN = {
    "README.md": {"trtcache run serve.py": "tests/integrations/test_torch_tensorrt_installation.py"},
    "docs/overview.md": {
        "make demo": "below, and tests/test_demo.py",
        "trtcache ls --filter kind=aot_inductor": "below",
        "trtcache show 49a6": "below",
        "trtcache stats": "below",
        "trtcache why net.pt2": "test_why.py",
    },
    "docs/integrations.md": {"trtcache run serve.py": "tests/integrations/test_torch_tensorrt_installation.py"},
}
"""The commands that are shown, and where their output is compared."""


@pytest.mark.parametrize("name", SHOWN)
def test_every_command_that_is_shown_is_known(name: str) -> None:
    """A command that is not compared must not be in a document."""
    assert set(console(name)) == set(SHOWN[name])


@pytest.fixture
def entry(store: DiskStore) -> str:
    """An entry with members, parts and provenance as the demo's has them; the digest of its key."""
    parts = {"ambient": {}, "graph": "b3:0", "inputs": [], "target": {"device": "cpu"}, "toolchain": {}}
    key = CacheKey.of("aot_inductor", parts)
    members = {"engine": bytes(1 << 20), "constants.safetensors": b"", "weight_map.json": b"{}", "graph.json": b"{}"}
    provenance = {"host": "h", "torch": "2.13.0+cpu", "trtcache": "0.1.0"}
    store.put(key, members, kind=key.kind, name="all-MiniLM-L6-v2", build_s=29.5, provenance=provenance)
    return key.digest


@pytest.mark.usefixtures("entry")
def test_ls_prints_what_the_overview_shows(terminal: Callable[..., Result]) -> None:
    """Heading and row."""
    (shown,) = OVERVIEW["trtcache ls --filter kind=aot_inductor"]
    printed = terminal("ls", "--filter", "kind=aot_inductor").out.splitlines()
    assert [shape(line) for line in printed] == [shape(line) for line in shown]


def test_show_prints_what_the_overview_shows(terminal: Callable[..., Result], entry: str) -> None:
    """Line by line, but for those that the overview leaves out by three dots."""
    (shown,) = OVERVIEW["trtcache show 49a6"]
    printed = {_label(line): line for line in map(plain, terminal("show", entry[:4]).out.splitlines())}
    pattern = "\n".join(r"[^\n]+(\n[^\n]+)*" if line == "..." else re.escape(_label(line)) for line in shown)
    assert re.fullmatch(pattern, "\n".join(printed))
    for line in shown:
        if not line.startswith(("...", "member", "part")):
            assert shape(line) == shape(printed[_label(line)])


def _label(line: str) -> str:
    return line.partition("  ")[0]


def test_stats_prints_what_the_overview_shows(terminal: Callable[..., Result], store: DiskStore) -> None:
    """After a build and two hits, with what direct mode keeps beside the engine."""
    for kind, size_bytes in (("direct", 34_000), ("alias", 6_000), ("direct-why", 4_000)):
        store.put(CacheKey.of(kind, {}), {"artifact": os.urandom(size_bytes)}, kind=kind)
    for _ in range(3):
        Cache(store.root).get_or_build({"n": 1}, lambda: os.urandom(100_000), kind="aot_inductor")
    (shown,) = OVERVIEW["trtcache stats"]
    printed = [plain(line) for line in terminal("stats").out.splitlines()]
    assert [shape(line) for line in printed[1:]] == [shape(line) for line in shown[1:]]
    assert [_label(line) for line in printed] == [_label(line) for line in shown]


def test_the_demo_prints_what_the_overview_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """Three steps and a table, and the pairs of sentences."""
    (shown,) = OVERVIEW["make demo"]
    sentences = [line.strip() for line in shown[shown.index("Nearest sentences, by the engine from the cache:") + 1 :]]
    pairs = [
        (one.partition("  ")[2], other, float(one[:5]))
        for one, other in zip(sentences[::2], sentences[1::2], strict=True)
    ]
    build = StepResult("build", "built", 33.6, 3.4, 29.5, 0.1, 1e-7, 0.0, pairs)
    hit = replace(build, step="hit", outcome="hit", compile_s=6.2, export_s=5.9, build_s=0.0, first_s=0.049)
    hit = replace(hit, later_s=0.024, eager_s=0.028)
    refit = replace(hit, step="refit", outcome="refitted", compile_s=0.005, export_s=0.0, later_s=0.0, eager_s=0.0)
    demo._print([build, hit, refit])
    printed = capsys.readouterr().out.splitlines()
    assert [shape(line) for line in printed] == [shape(line) for line in shown]
