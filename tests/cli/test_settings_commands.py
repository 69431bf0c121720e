"""``trtcache dir``, ``config`` and ``completion``."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from trtcache.config.environment import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result


def test_dir_prints_the_directory_and_makes_nothing(run: Callable[..., Result], root: Path, tmp_path: Path) -> None:
    """Whether it exists or not."""
    assert run("dir").out == f"{root}\n"
    assert run("dir", "--json").json == {"root": str(root), "exists": False, "lower": []}
    assert run("dir", "--cache-dir", tmp_path / "other").out == f"{tmp_path}/other\n"
    assert not root.exists()


def test_config_names_every_variable_and_its_origin(
    run: Callable[..., Result], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defaults, the environment and the command line are distinguished."""
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", "0")
    found = run("config", "--json").json
    assert set(found) == set(VARIABLES)
    assert found["TRTCACHE_DIR"] == {"value": str(root), "origin": "environment"}
    assert found["TRTCACHE_MAX_SIZE"] == {"value": None, "origin": "environment"}
    assert found["TRTCACHE_DISABLE"] == {"value": False, "origin": "default"}
    assert run("config", "--json", "--cache-dir", "/x").json["TRTCACHE_DIR"] == {"value": "/x", "origin": "--cache-dir"}


def test_config_prints_lines(
    run: Callable[..., Result], terminal: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal gets the meaning of each as well."""
    monkeypatch.setenv("TRTCACHE_READONLY", "yes")
    rows = {row[0]: row[1:] for row in run("config").rows}
    assert rows["TRTCACHE_MAX_SIZE"] == ["20 GB", "default"]
    assert rows["TRTCACHE_READONLY"] == ["1", "environment"]
    assert "take hits, write nothing" in terminal("config").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run: Callable[..., Result], shell: str) -> None:
    """It calls this program."""
    done = run("completion", shell)
    assert done.code == 0
    assert "_TRTCACHE_COMPLETE" in done.out


def test_the_bash_script_is_valid(run: Callable[..., Result]) -> None:
    """Bash reads it without complaint."""
    script = run("completion", "bash").out
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_keys_are_completed_from_the_store(program: Callable[..., Result], put: Callable[..., str]) -> None:
    """A prefix gives the keys that begin so, commands are completed too, and a broken store gives nothing."""
    first, second = put(1), put(2)
    asked = {"_TRTCACHE_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    everything = program(COMP_WORDS="trtcache show ", **asked).out
    assert {first[:16], second[:16]} == {line.partition(",")[2] for line in everything.splitlines()}
    assert program(COMP_WORDS=f"trtcache show {first[:5]}", **asked).out == f"plain,{first[:16]}\n"
    assert program(COMP_WORDS=f"trtcache rm {first}", **asked).out == f"plain,{first}\n"
    assert program(COMP_WORDS="trtcache show ", TRTCACHE_DIR="/proc", **asked).out.strip() == ""
    assert "plain,prune" in program(COMP_WORDS="trtcache pr", _TRTCACHE_COMPLETE="bash_complete", COMP_CWORD="1").out
