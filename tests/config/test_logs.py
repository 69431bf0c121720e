"""``TRTCACHE_LOG``: logging to standard error by area."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trtcache
from trtcache.config.environment import AREAS, start_logging
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from tests.conftest import RunPython


def test_lowering_prints_what_each_pass_changed(run_python: RunPython) -> None:
    """Each pass with its seconds, and those that changed something with a diff; without the variable nothing."""
    code = """
import torch, trtcache
trtcache.lower(torch.nn.Linear(4, 4), (torch.ones(4, 4),))
"""
    said = run_python(code, TRTCACHE_LOG="lowering").stderr
    assert re.search(r"^trtcache\.lowering: dead_code@\d+ changed \w+( \w+)? in ", said, re.MULTILINE)
    assert run_python(code).stderr == ""


def test_keys_and_store_say_what_was_asked_and_found(run_python: RunPython) -> None:
    """Areas are joined by commas; a cache that is opened starts them."""
    code = """
import trtcache
import tempfile
cache = trtcache.Cache(tempfile.mkdtemp() + "/c")
for _ in range(2):
    cache.get_or_build({"n": 1}, lambda: b"engine", kind="test")
"""
    said = run_python(code, TRTCACHE_LOG="store, keys").stderr.splitlines()
    assert [re.sub(r"[0-9a-f]{16}", "KEY", line) for line in said] == [
        "trtcache.cache: test KEY: absent",
        "trtcache.cache: test KEY: absent",
        "trtcache.cache: test KEY: hit",
    ]


def test_keys_says_the_digest_of_each_part(run_python: RunPython) -> None:
    """This shows which parts differ between two machines."""
    code = """
import torch, trtcache
trtcache.key(torch.nn.Linear(4, 4), (torch.ones(4, 4),))
"""
    said = run_python(code, TRTCACHE_LOG="keys").stderr
    assert re.search(r"^trtcache\.keys: Linear is aot_inductor [0-9a-f]{64}: graph [0-9a-f]{12}, ", said, re.MULTILINE)


def test_each_logger_is_in_an_area() -> None:
    """``-vv`` logs all areas."""
    package = Path(trtcache.__file__).parent
    modules = [path for path in package.rglob("*.py") if "getLogger(__name__)" in path.read_text(encoding="utf-8")]
    names = [".".join(path.relative_to(package.parent).with_suffix("").parts) for path in modules]
    areas = tuple(name for area in AREAS.values() for name in area)
    assert [name for name in names if not f"{name}.".startswith(tuple(f"{one}." for one in areas))] == []


def test_an_unknown_area_is_an_error_that_names_it() -> None:
    """With the nearest one that there is."""
    with pytest.raises(SettingsError, match="TRTCACHE_LOG: 'lowerin': unknown; did you mean 'lowering'"):
        start_logging({"TRTCACHE_LOG": "lowerin"})


def test_remotes_have_an_area(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their look-ups and uploads can be logged alone."""
    logger = logging.getLogger("trtcache.remote")
    monkeypatch.setattr(logger, "level", logger.level)
    start_logging({"TRTCACHE_LOG": "remote"})
    assert logger.level == logging.DEBUG
    logger.setLevel(logging.NOTSET)


def test_handlers_of_the_program_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With existing handlers, nothing is printed twice."""
    logger = logging.getLogger("trtcache.keys")
    monkeypatch.setattr(logger, "level", logger.level)
    start_logging({"TRTCACHE_LOG": "keys"})
    assert logger.handlers == []
    assert logger.level == logging.DEBUG
    logger.setLevel(logging.NOTSET)
    logging.getLogger("trtcache.api").setLevel(logging.NOTSET)
