"""What a new user meets: tables on a narrow terminal, questions before a removal, misspelt variables."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import trtcache
from trtcache.config.environment import Config, warn_about_unknown_variables
from trtcache_cli import output
from trtcache_cli.main import COMMANDS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

MINILM = "sentence-transformers/all-MiniLM-L6-v2-with-a-longer-name-than-fits"
WIDE = "模型" * 30


@pytest.fixture
def cache(tmp_path: Path) -> trtcache.Cache:
    """A cache of three entries, two with names that do not fit."""
    cache = trtcache.Cache(tmp_path / "cache")
    for number, name in enumerate((MINILM, WIDE, "short")):
        cache.get_or_build({"n": number}, lambda: os.urandom(74_100), kind="shared_library", name=name)
    return cache


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("command", [["ls"], ["prune", "--max-size", "0", "-n"]])
def test_names_are_shortened_and_numbers_are_not(
    cache: trtcache.Cache, command: list[str], columns: int, terminal: Callable[..., Result]
) -> None:
    """Every size is whole on every width, and a line is as wide as the terminal at most, if 12 columns of name fit."""
    shown = terminal(*command, "--cache-dir", str(cache.config.root), columns=columns).out
    rows = [line for line in shown.splitlines() if re.match("[0-9a-f]{16} ", line)]
    sizes = [re.findall(r"\d+(?:\.\d+)? kB", row) for row in rows]
    assert len(rows) == 3
    assert sizes == [["78.2 kB"]] * 3
    assert any("sent" in row and "fits" in row for row in rows)
    if columns >= 80:
        assert all(output.text_width(row) <= columns for row in rows)


def test_texts_are_shortened_by_columns() -> None:
    """Wide characters take two columns, and marks none."""
    assert output.shorten_middle("abcdefghij", 7) == "abc…hij"
    assert output.shorten_middle("模型模型模型", 7) == "模…型"
    assert output.shorten_middle("abc", 3) == "abc"
    assert output.text_width("e\u0301") == 1


def test_rm_shows_and_asks_on_a_terminal(cache: trtcache.Cache, terminal: Callable[..., Result]) -> None:
    """No removes nothing, yes does, and -y does not ask."""
    first, second, third = (record.digest for record in cache)
    root = str(cache.config.root)
    assert "Remove 1 entry?" in terminal("rm", first, "--cache-dir", root, answer="n\n").out
    assert first in cache
    assert "removed" in terminal("rm", first, "--cache-dir", root, answer="y\n").out
    assert first not in cache
    assert "Remove" not in terminal("rm", second, "-y", "--cache-dir", root).out
    assert "shared_library" in terminal("rm", third, "-n", "--cache-dir", root).out
    assert [record.digest for record in cache] == [third]


def test_a_cache_is_a_container(cache: trtcache.Cache) -> None:
    """It has a length, entries, membership, deletion, totals and a repr, and is true when it is empty."""
    key = cache.key({"n": 0}, kind="shared_library")
    assert key in cache
    assert (len(cache), {record.name for record in cache}) == (3, {MINILM, WIDE, "short"})
    assert cache.get(key) is not None
    stats = cache.stats()
    assert (stats.entries, stats.hits, stats.misses) == (3, 1, 3)
    assert stats.file_bytes > 3 * 74_100
    assert (cache.delete(key), cache.delete(key.digest), key in cache, 3 in cache) == (True, False, False, False)
    assert repr(cache) == f"Cache({cache.config.root}: 2 files)"
    for record in list(cache):
        cache.delete(record.digest)
    assert cache
    assert not len(cache)


def test_every_command_is_in_one_group() -> None:
    """The help lists each once."""
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(COMMANDS)


def test_a_misspelt_variable_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It names the variable that was probably meant, and comes once for one environment."""
    warn_about_unknown_variables.cache_clear()
    environ = {"TRTCACHE_MAXSIZE": "1GB", "TRTCACHE_XYZZY_PLUGH": "1", "TRTCACHE_DISABLE": "1"}
    with caplog.at_level(logging.WARNING):
        Config.from_environ(environ)
        Config.from_environ(environ)
    assert caplog.messages == [
        "TRTCACHE_MAXSIZE has no effect; did you mean TRTCACHE_MAX_SIZE?",
        "TRTCACHE_XYZZY_PLUGH has no effect; trtcache config lists those that have",
    ]


def test_errors_are_public() -> None:
    """A program that catches them imports nothing else."""
    assert trtcache.TrtcacheError is trtcache.errors.TrtcacheError


def test_without_torch_the_message_says_what_to_install(tmp_path: Path) -> None:
    """In the base install ``compile`` and what else needs torch name the extra."""
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "import trtcache\n"
        "for use in (lambda: trtcache.compile('net.pt2'), lambda: trtcache.CompiledModule):\n"
        "    try: use()\n"
        "    except ModuleNotFoundError as error: print(error)\n"
    )
    environ = {**os.environ, "TRTCACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"{what} needs torch: pip install 'trtcache[torch]'" for what in ("net.pt2", "trtcache.CompiledModule")
    ]
