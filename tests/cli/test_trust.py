"""``trtcache trust``, and what the commands that look say of signatures."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from trtcache.cache import Cache
from trtcache.config.signing_keys import SecretKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Result

PUBLIC = f"other:{'ab' * 32}"


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration folder of this test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "trtcache"


def test_a_new_key_signs_and_counts(run: Callable[..., Result], own_settings: Path) -> None:
    """Its public half is printed, the secret one is in a file for this user only, and both are in the settings."""
    public = run("trust", "keygen", "ci-main").out.strip()
    secret = own_settings / "keys" / "ci-main.secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert str(SecretKey.read(secret).public) == public
    assert run("trust", "ls").rows == [["ci-main", public.partition(":")[2], "", "signs"]]
    again = run("trust", "keygen", "ci-main")
    assert (again.code, "already contains a key" in again.err) == (2, True)
    assert SecretKey.read(secret).seed.hex() not in (own_settings / "trtcache.toml").read_text()
    settings = run("config", "--json").json
    assert settings["TRTCACHE_SIGNING_KEY"] == {"value": str(secret), "origin": "trtcache.toml"}
    assert settings["TRTCACHE_TRUSTED_KEYS"]["value"] == public


def test_a_key_for_others_changes_no_settings(run: Callable[..., Result], own_settings: Path, tmp_path: Path) -> None:
    """With --output it is only written."""
    made = run("trust", "keygen", "ci-pr", "--output", tmp_path / "pr.secret", "--json").json
    assert made["secret"] == str(tmp_path / "pr.secret")
    assert str(SecretKey.read(tmp_path / "pr.secret").public) == made["public"]
    assert not own_settings.exists()


def test_keys_come_and_go(run: Callable[..., Result]) -> None:
    """Added keys are listed with their last day; a name stands for one key; removed ones are gone."""
    assert run("trust", "add", PUBLIC, "--until", "2999-01-31", "--json").json == {"added": f"{PUBLIC}:2999-01-31"}
    assert run("trust", "add", f"third:{'cd' * 32}").code == 0
    (row, _) = run("trust", "ls", "--json").json["keys"]
    assert row == {"name": "other", "key": "ab" * 32, "until": "2999-01-31", "signs": False}
    past = run("trust", "add", PUBLIC, "--until", "2020-01-31")
    assert (past.code, "2020-01-31 has passed" in past.err) == (2, True)
    assert run("trust", "add", PUBLIC).code == 0  # without a last day again
    taken = run("trust", "add", f"other:{'00' * 32}")
    assert (taken.code, "another key is named 'other'" in taken.err) == (2, True)
    assert run("trust", "rm", "other", "--json").json == {"removed": ["other"]}
    assert [row[0] for row in run("trust", "ls").rows] == ["third"]
    gone = run("trust", "rm", "thrid")
    assert (gone.code, "did you mean 'third'" in gone.err) == (2, True)


def test_a_removed_key_that_signs_is_pointed_out(run: Callable[..., Result]) -> None:
    """From then on nothing is stored where signatures are required; another key is no problem."""
    run("trust", "keygen", "old")
    run("trust", "keygen", "new")
    assert run("trust", "rm", "old").err == ""
    assert "nothing is stored until there is another: trtcache trust keygen" in run("trust", "rm", "new").err


def test_a_key_that_cannot_be_used_is_not_made(run: Callable[..., Result], own_settings: Path) -> None:
    """Its name belongs to another key: no secret is written, and once that key is removed the name is free."""
    run("trust", "add", PUBLIC)
    refused = run("trust", "keygen", "other")
    assert (refused.code, "another key is named 'other'" in refused.err) == (2, True)
    assert not (own_settings / "keys").exists()
    run("trust", "rm", "other")
    assert run("trust", "keygen", "other").code == 0


def test_folders_of_settings_are_the_users_alone(run: Callable[..., Result], own_settings: Path) -> None:
    """Also those above, whatever the umask: who can write to one can take the file away."""
    old = os.umask(0)
    try:
        run("trust", "keygen", "mine")
    finally:
        os.umask(old)
    made = [own_settings.parent, own_settings, own_settings / "keys"]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3


@pytest.mark.parametrize("text", ["nonsense", "a:12", f"trtcache-secret:a:{'12' * 32}", f"a/b:{'ab' * 32}"])
def test_what_is_no_public_key_is_refused(run: Callable[..., Result], text: str) -> None:
    """A secret key is recognised, and not printed."""
    done = run("trust", "add", text)
    assert done.code == 2
    assert "12" * 32 not in done.err


def test_a_variable_that_overrides_the_file_is_reported(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment would override the file."""
    monkeypatch.setenv("TRTCACHE_TRUSTED_KEYS", PUBLIC)
    assert "TRTCACHE_TRUSTED_KEYS is set in the environment" in run("trust", "add", f"third:{'cd' * 32}").err


def test_the_commands_that_look_show_the_signer(
    run: Callable[..., Result], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ls where signatures are required, show and verify always; an untrusted entry is not damaged."""
    Cache(root).get_or_build({"n": 1}, lambda: b"x", kind="test", name="unsigned")
    public = run("trust", "keygen", "ci-main").out.strip()
    Cache(root).get_or_build({"n": 2}, lambda: b"y", kind="test", name="signed")
    assert len(run("ls").rows[0]) == 8
    assert {row[2]: row[8] for row in run("ls", "--signers").rows} == {"unsigned": "unsigned", "signed": "ci-main"}
    monkeypatch.setenv("TRTCACHE_SIGNATURES", "require")
    entries = {one["name"]: one for one in run("ls", "--json").json["entries"]}
    assert (entries["signed"]["signer"], entries["signed"]["untrusted"]) == ("ci-main", None)
    assert (entries["unsigned"]["signer"], entries["unsigned"]["untrusted"]) == (None, "unsigned")
    assert ["signed by", "ci-main"] in run("show", entries["signed"]["key"]).rows
    run("trust", "rm", "ci-main")
    shown = run("show", entries["signed"]["key"], "--json").json
    assert (shown["signer"], shown["untrusted"]) == (public.partition(":")[2][:16], "unknown-key")
    checked = run("verify", "--json")
    assert (checked.code, len(checked.json["damaged"]), len(checked.json["untrusted"])) == (0, 0, 2)
    assert "0 damaged, 2 not trusted" in run("verify").err


def test_keys_that_are_added_at_once_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process reads, changes and writes the file under a lock."""
    monkeypatch.setenv("TRTCACHE_CONFIG", str(tmp_path / "own.toml"))
    (tmp_path / "own.toml").touch(mode=0o600)
    keys = [f"k{n}:{n:064x}" for n in range(1, 5)]
    command = [sys.executable, "-m", "trtcache_cli", "trust", "add"]
    processes = [subprocess.Popen([*command, key], env=os.environ) for key in keys]
    assert [process.wait() for process in processes] == [0] * 4
    text = (tmp_path / "own.toml").read_text()
    assert [key for key in keys if key not in text] == []
