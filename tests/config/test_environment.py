"""The environment's switches."""

from __future__ import annotations

import os
import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

from tests.store.users import ALICE, as_user, needs_root, public_directory
from trtcache.config.environment import (
    DEFAULT_MAX_SIZE_BYTES,
    VARIABLES,
    Config,
    default_root,
    merge_settings,
    read_settings,
    write_setting,
)
from trtcache.config.remotes import RemoteSettings, RemoteUrl
from trtcache.config.signing_keys import PublicKey, SecretKey, Trust
from trtcache.config.units import ContentionPolicy
from trtcache.errors import SettingsError

KEYS = f"a:{'aa' * 32} b:{'bb' * 32}:2027-01-31"


def test_an_empty_environment_has_defaults() -> None:
    """Without variables the cache is the user's own, with a limit, and may do everything."""
    assert Config.from_environ({}) == Config(default_root(), DEFAULT_MAX_SIZE_BYTES)


def test_the_default_root_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default directory is trtcache in $XDG_CACHE_HOME."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/trtcache")


def test_every_variable_is_read(tmp_path: Path) -> None:
    """Each documented variable changes its field."""
    (tmp_path / "own.toml").write_text("disable = false")
    environ = dict.fromkeys(VARIABLES, "1") | {
        "TRTCACHE_REMOTE": "s3://bucket/prefix",
        "TRTCACHE_DIR": "",
        "TRTCACHE_PATH": "/c:/l:/m",
        "TRTCACHE_MAX_SIZE": "5GB",
        "TRTCACHE_ON_BUSY": "eager",
        "TRTCACHE_SIGNATURES": "require",
        "TRTCACHE_TRUSTED_KEYS": KEYS,
        "TRTCACHE_SIGNING_KEY": "/k",
        "TRTCACHE_CONFIG": str(tmp_path / "own.toml"),
        "TRTCACHE_DIRECT": "verify",
        "TRTCACHE_ON_MISS": "background",
    }
    config = Config.from_environ(environ)
    switches = {"disable": True, "readonly": True, "recache": True, "forbid_build": True, "no_torch": True}
    trust = Trust(True, (PublicKey("a", b"\xaa" * 32), PublicKey("b", b"\xbb" * 32, date(2027, 1, 31))), Path("/k"))
    assert config == Config(
        Path("/c"),
        5 * 10**9,
        1,
        **switches,
        log="1",
        trust=trust,
        busy=ContentionPolicy("eager", 1.0),
        lower=(Path("/l"), Path("/m")),
        copy_up=True,
        direct="verify",
        on_miss="background",
        quiet=True,
        remotes=RemoteSettings((RemoteUrl.parse("s3://bucket/prefix"),), 1.0, 1.0, 1.0, 1.0),
    )


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a/b?mode=write&claims=1&lifetime=36h&endpoint=https%3A%2F%2Fminio.example&region=eu",
        "gs://bucket?mode=write&endpoint=http://localhost:9000",
        "az://container/x?account=me",
        "https://host:8443/folder",
        "http://10.0.0.1/x?insecure=1",
    ],
)
def test_another_process_gets_the_same_configuration(tmp_path: Path, url: str) -> None:
    """Through the environment, whatever the settings file says."""
    lower = () if "http" in url else (Path("/l"), Path("/m"))
    config = Config(
        tmp_path / "cache",
        None,
        7,
        recache=True,
        trust=Trust(False, (PublicKey("b", b"\xbb" * 32, date(2027, 1, 31)),), Path("/k")),
        busy=ContentionPolicy("build", 2.5),
        lower=lower,
        direct="on",
        on_miss="background",
        quiet=True,
        remotes=RemoteSettings((RemoteUrl.parse(url), RemoteUrl.parse("s3://other")), 0.1, 2.0, 0.0, 1.0),
    )
    (tmp_path / "own.toml").write_text("readonly = true\ncopy-up = true\nmax-entries = 1\ndir = '/else'\n")
    (tmp_path / "own.toml").chmod(0o600)
    assert Config.from_environ({**config.variables(), "TRTCACHE_CONFIG": str(tmp_path / "own.toml")}) == config


def test_a_path_with_colons_cannot_be_one_of_several() -> None:
    """In a variable it would be two."""
    config = Config(Path("/a:b"))
    assert Config.from_environ(config.variables()) == config
    with pytest.raises(SettingsError, match="colon"):
        Config(Path("/a:b"), lower=(Path("/c"),)).variables()


def test_a_path_stands_for_the_directory(tmp_path: Path) -> None:
    """An empty first one is the default; two variables that say the same thing are an error, a file's word is not."""
    assert Config.from_environ({"TRTCACHE_DIR": "/c"}).lower == ()
    config = Config.from_environ({"TRTCACHE_PATH": ":/l:"})
    assert (config.root, config.lower) == (default_root(), (Path("/l"),))
    with pytest.raises(SettingsError, match="TRTCACHE_DIR is set too"):
        Config.from_environ({"TRTCACHE_PATH": "/a", "TRTCACHE_DIR": "/b"})
    (tmp_path / "own.toml").write_text('path = "/f:/g"')
    own = {"TRTCACHE_CONFIG": str(tmp_path / "own.toml")}
    assert Config.from_environ(own).lower == (Path("/g"),)
    assert (Config.from_environ({**own, "TRTCACHE_DIR": "/b"}).root, Config.from_environ(own).root) == (
        Path("/b"),
        Path("/f"),
    )


def test_the_file_has_settings_under_the_variables(tmp_path: Path) -> None:
    """Each setting may be in the file; the environment overrides it."""
    file = tmp_path / "trtcache" / "trtcache.toml"
    file.parent.mkdir()
    file.write_text(f'max-size = "3GB"\nreadonly = true\nsignatures = "require"\ntrusted-keys = {KEYS.split()}\n')
    config = Config.from_environ({"TRTCACHE_CONFIG": str(file), "TRTCACHE_SIGNATURES": "off"})
    assert (config.max_size_bytes, config.readonly, config.trust.required) == (3 * 10**9, True, False)
    assert [key.name for key in config.trust.keys] == ["a", "b"]


def test_an_empty_variable_does_not_switch_off_required_signatures(tmp_path: Path) -> None:
    """Of other settings it is the default."""
    file = tmp_path / "own.toml"
    file.write_text('signatures = "require"\nmax-size = "3GB"\n')
    file.chmod(0o600)
    for empty in ("", " "):
        names = {"TRTCACHE_CONFIG": str(file), "TRTCACHE_SIGNATURES": empty, "TRTCACHE_MAX_SIZE": ""}
        config = Config.from_environ(names)
        assert (config.trust.required, config.max_size_bytes) == (True, Config(tmp_path).max_size_bytes)
    assert Config.from_environ({**names, "TRTCACHE_SIGNATURES": "off"}).trust.required is False


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_size = 3", "max_size: unknown; did you mean 'max-size'"),
        ("= nonsense", "it is not valid TOML"),
        ("dir = [1]", "is not a string, an integer"),
        ('path = ["/fast", "/srv"]', "path: ['/fast', '/srv'] is a list, and this setting takes one value"),
        ("max-size = true", "max-size: true is a boolean, and this setting takes a string or a number"),
        ('signatures = "perhaps"', "TRTCACHE_SIGNATURES: 'perhaps' is not require or off"),
        ('trusted-keys = ["a:12"]', "'a:12' is not a public key"),
        (f'trusted-keys = ["../a:{"0" * 64}"]', "'../a' is not a valid key name"),
        (f'trusted-keys = ["a:{"0" * 64}:soon"]', "'soon' is not a date"),
        (f'trusted-keys = ["trtcache-secret:a:{"0" * 64}"]', "this is a secret key"),
    ],
)
def test_an_invalid_file_is_named(tmp_path: Path, text: str, why: str) -> None:
    """A typo is an error that names the setting, and never shows a secret key."""
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(SettingsError, match=re.escape(why)) as caught:
        Config.from_environ({"TRTCACHE_CONFIG": str(tmp_path / "own.toml")})
    assert "0" * 64 not in str(caught.value) or "../a" in why


def test_the_file_has_fractions_of_seconds(tmp_path: Path) -> None:
    """As numbers, and as text."""
    (tmp_path / "own.toml").write_text('remote-timeout = 0.5\nremote-flush = "2.5"\nremotes = ["s3://a", "s3://b"]\n')
    remotes = Config.from_environ({"TRTCACHE_CONFIG": str(tmp_path / "own.toml")}).remotes
    assert (remotes.timeout_s, remotes.flush_s, len(remotes.urls)) == (0.5, 2.5, 2)


@needs_root
def test_a_file_that_cannot_be_reached_is_none_unless_it_is_named() -> None:
    """Such as with HOME of another user; a program goes on with a warning."""
    with public_directory() as directory:
        (directory / "closed").mkdir(mode=0o700)

        def read() -> None:
            os.environ["XDG_CONFIG_HOME"] = str(directory / "closed")
            assert merge_settings({"A": "1"}) == {"A": "1"}
            with pytest.raises(SettingsError, match=r"TRTCACHE_CONFIG: .*cannot be read: Permission denied"):
                merge_settings({"TRTCACHE_CONFIG": str(directory / "closed" / "own.toml")})

        as_user(ALICE, read)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """It controls trust: a file writable by others is an error, and so is a named file that does not exist."""
    (tmp_path / "own.toml").write_text("")
    (tmp_path / "large.toml").write_text("#" * (1 << 20) + "\n")
    (tmp_path / "own.toml").chmod(0o664)
    with pytest.raises(SettingsError, match="run: chmod go-w"):
        Config.from_environ({"TRTCACHE_CONFIG": str(tmp_path / "own.toml")})
    for name, why in (("absent", "does not exist"), (".", "is not a file"), ("large.toml", "larger than 1 MiB")):
        with pytest.raises(SettingsError, match=why):
            Config.from_environ({"TRTCACHE_CONFIG": str(tmp_path / name)})


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# mine\nmax-size = '3GB'  # three\n\n[later]\n",
        "# mine\nsigning-key = 'k'\ntrusted-keys = [\n  'x', # old\n] # end\nmax-size = 1\n",
    ],
)
def test_one_setting_is_changed_and_the_rest_kept(tmp_path: Path, before: str) -> None:
    """Comments and the other settings are as they were."""
    file, mode = tmp_path / "made" / "trtcache.toml", 0
    if before:
        file.parent.mkdir()
        file.write_text(before)
        mode = file.stat().st_mode & 0o777  # which stays
    write_setting(file, "trusted-keys", ["a", "b"])
    text = file.read_text()
    assert tomllib.loads(text) == {**tomllib.loads(before), "trusted-keys": ["a", "b"]}
    assert [line for line in before.splitlines() if "mine" in line] == [
        line for line in text.splitlines() if "#" in line
    ][:1]
    assert file.stat().st_mode & 0o777 == (mode or 0o600)


def test_a_setting_written_in_a_way_of_its_own_is_left(tmp_path: Path) -> None:
    """What cannot be changed safely is left for its writer."""
    file = tmp_path / "trtcache.toml"
    file.write_text('"trusted-keys" = ["x"]')
    with pytest.raises(SettingsError, match="set it by hand"):
        write_setting(file, "trusted-keys", ["a"])
    assert file.read_text() == '"trusted-keys" = ["x"]'


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


@pytest.mark.parametrize("home", [None, "", "here"])
@pytest.mark.parametrize("old", [False, True], ids=["platformdirs", "an older one"])
def test_without_a_home_the_working_directory_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None, old: bool
) -> None:
    """Without a home directory, ``~`` does not fall back to a directory that could control trust."""
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    if old:
        monkeypatch.setattr("platformdirs.user_cache_path", lambda name, **_: Path("~/.cache") / name)
        monkeypatch.setattr("platformdirs.user_config_path", lambda name, **_: Path("~/.config") / name)
    monkeypatch.chdir(tmp_path)
    for folder in ("~", "here", "."):
        settings = tmp_path / folder / ".config" / "trtcache" / "trtcache.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text('signatures = "off"')
    config = Config.from_environ({})
    assert (config.root, config.trust) == (Path("/.cache/trtcache"), Trust())
    if home is None:
        with pytest.raises(SettingsError, match=r"TRTCACHE_DIR: '~/cache' is not a valid path"):
            Config.from_environ({"TRTCACHE_DIR": "~/cache"})


@pytest.mark.parametrize("variable", ["TRTCACHE_DIR", "TRTCACHE_PATH", "TRTCACHE_SIGNING_KEY"])
@pytest.mark.parametrize("text", ["/a\0b", "/\ud800"], ids=["zero", "surrogate"])
def test_what_no_path_can_have_is_a_settings_error(variable: str, text: str) -> None:
    """A settings file can say what an environment cannot."""
    with pytest.raises(SettingsError, match=rf"^{variable}: .* is not a valid path"):
        Config.from_environ({variable: text})


def test_a_change_keeps_the_mode_of_the_file(tmp_path: Path) -> None:
    """A file for all users stays readable to them; a new one is for its owner."""
    path = tmp_path / "own.toml"
    write_setting(path, "max-size", "5GB")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    write_setting(path, "max-size", "6GB")
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """It is neither read nor written with other characters in place of its own."""
    path = tmp_path / "own.toml"
    path.write_bytes('dir = "/caché"\n'.encode("latin-1"))
    path.chmod(0o600)
    for work in (lambda: read_settings(path), lambda: write_setting(path, "max-size", "1GB")):
        with pytest.raises(SettingsError, match="it is not UTF-8 text"):
            work()
    assert path.read_bytes() == 'dir = "/caché"\n'.encode("latin-1")


def test_a_number_of_entries_of_many_digits_is_an_error_of_the_settings() -> None:
    """Python refuses to convert it."""
    with pytest.raises(SettingsError, match="TRTCACHE_MAX_ENTRIES"):
        Config.from_environ({"TRTCACHE_MAX_ENTRIES": "9" * 5000})


def test_a_key_that_cannot_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt can use its name."""

    def fail(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        SecretKey("a", b"s" * 32).write(tmp_path / "a.secret")
    assert list(tmp_path.iterdir()) == []
