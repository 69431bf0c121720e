"""The environment's switches."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtcache.config import DEFAULT_MAX_SIZE_BYTES, VARIABLES, Config, default_root
from trtcache.errors import SettingsError


def test_an_empty_environment_has_defaults() -> None:
    """Without variables the cache is the user's own, with a limit, and may do everything."""
    assert Config.from_environ({}) == Config(default_root(), DEFAULT_MAX_SIZE_BYTES)


def test_the_default_root_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default directory is trtcache in $XDG_CACHE_HOME."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/trtcache")


def test_every_variable_is_read() -> None:
    """Each documented variable changes its field."""
    environ = dict.fromkeys(VARIABLES, "1") | {"TRTCACHE_DIR": "/c", "TRTCACHE_MAX_SIZE": "5GB"}
    config = Config.from_environ(environ)
    switches = {"disable": True, "readonly": True, "recache": True, "forbid_build": True}
    assert config == Config(Path("/c"), 5 * 10**9, **switches, log="1")


def test_a_limit_of_zero_is_no_limit() -> None:
    """TRTCACHE_MAX_SIZE=0 lets the cache grow."""
    assert Config.from_environ({"TRTCACHE_MAX_SIZE": "0"}).max_size_bytes is None
    assert Config.from_environ({"TRTCACHE_MAX_SIZE": ""}).max_size_bytes == DEFAULT_MAX_SIZE_BYTES


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("", False)])
def test_switches(text: str, value: bool) -> None:
    """A switch is on or off in the usual words."""
    assert Config.from_environ({"TRTCACHE_DISABLE": text}).disable is value


@pytest.mark.parametrize("name", ["TRTCACHE_DISABLE", "TRTCACHE_READONLY", "TRTCACHE_MAX_SIZE"])
def test_an_impossible_value_names_its_variable(name: str) -> None:
    """A typo is an error that names the variable, not a silent default."""
    with pytest.raises(SettingsError, match=f"{name}: 'perhaps' is"):
        Config.from_environ({name: "perhaps"})


def test_a_relative_root_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A later change of the working directory does not move the cache; ~ is the home directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert Config.from_environ({"TRTCACHE_DIR": "c"}).root == tmp_path / "c"
    assert Config.from_environ({"TRTCACHE_DIR": "~/c"}).root == Path("/home/me/c")
