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


def test_a_path_of_one_directory_is_shown_as_the_path(
    run: Callable[..., Result], file: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sets the cache directory, and where that has a variable of its own, the path of the file has no effect."""
    file.parent.mkdir(exist_ok=True)
    file.touch(mode=0o600)
    monkeypatch.delenv("TRTCACHE_DIR")
    monkeypatch.setenv("TRTCACHE_PATH", "/a")
    found = run("config", "--json").json
    assert found["TRTCACHE_PATH"] == {"value": "/a", "origin": "environment"}
    assert found["TRTCACHE_DIR"] == {"value": "/a", "origin": "TRTCACHE_PATH"}
    found = run("config", "--json", "--cache-dir", root).json
    assert found["TRTCACHE_PATH"] == {"value": "", "origin": "--cache-dir"}
    monkeypatch.delenv("TRTCACHE_PATH")
    assert run("config", "set", "path", "/b:/c").code == 0
    assert run("config", "get", "path").out == "/b:/c\n"
    monkeypatch.setenv("TRTCACHE_DIR", "/d")
    found = run("config", "--json").json
    assert found["TRTCACHE_PATH"] == {"value": "", "origin": "TRTCACHE_DIR"}
    assert found["TRTCACHE_DIR"] == {"value": "/d", "origin": "environment"}


def test_config_prints_lines(
    run: Callable[..., Result], terminal: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal gets the meaning of each as well."""
    monkeypatch.setenv("TRTCACHE_READONLY", "yes")
    rows = {row[0]: row[1:] for row in run("config").rows}
    assert rows["TRTCACHE_MAX_SIZE"] == ["20 GB", "default"]
    assert rows["TRTCACHE_READONLY"] == ["1", "environment"]
    assert "take hits, write nothing" in terminal("config").out


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file, which does not exist yet."""
    path = tmp_path / "home" / "trtcache.toml"
    monkeypatch.setenv("TRTCACHE_CONFIG", str(path))
    return path


def test_the_table_fits_a_narrow_terminal(terminal: Callable[..., Result]) -> None:
    """Values are shortened in the middle, and meanings are left to ``get``."""
    out = terminal("config", columns=80).out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "config get KEY" in out
    assert "take hits, write nothing" in terminal("config", "get", "readonly").out


def test_a_setting_is_written_read_and_removed(run: Callable[..., Result], file: Path) -> None:
    """The rest of the file stays, comments included; its value is in effect."""
    assert run("config", "set", "max-size", "50GB").code == 0
    file.write_text("# mine\nlater = 1\n".replace("later = 1", "copy-up = false # no") + file.read_text())
    assert run("config", "get", "max-size").out == "50000000000\n"
    assert run("config", "set", "copy_up", "yes").err == f"wrote copy-up = true to {file}\n"
    assert run("config", "set", "TRTCACHE_MAX_ENTRIES", 7, "--json").json["set"] == 7
    assert file.read_text() == 'max-entries = 7\n# mine\ncopy-up = true # no\nmax-size = "50GB"\n'
    document = {"key": "max-entries", "variable": "TRTCACHE_MAX_ENTRIES", "value": 7, "origin": "trtcache.toml"}
    assert run("config", "get", "max-entries", "--json").json == document
    assert run("config", "--json", "get", "max-entries").json == document
    done = run("config", "unset", "copy-up", "--json").json
    assert (done["removed"], done["origin"], done["path"]) == (True, "default", str(file))
    assert file.read_text() == 'max-entries = 7\n# mine\nmax-size = "50GB"\n'
    again = run("config", "unset", "copy-up")
    assert (again.code, again.err.splitlines()[0]) == (0, f"copy-up is not in {file}")


def test_a_link_to_the_file_stays_a_link(run: Callable[..., Result], file: Path, tmp_path: Path) -> None:
    """The file may be kept in a repository; nothing else is left in either folder."""
    file.parent.mkdir()
    (tmp_path / "kept.toml").write_text("readonly = true\n")
    file.symlink_to(tmp_path / "kept.toml")
    assert run("config", "set", "max-size", "1GB").code == 0
    assert file.is_symlink()
    assert (tmp_path / "kept.toml").read_text() == 'max-size = "1GB"\nreadonly = true\n'
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_lists_take_several_values(run: Callable[..., Result], file: Path) -> None:
    """Others take one."""
    assert run("config", "set", "remotes", "s3://a/b?mode=write", "s3://c/d").code == 0
    assert run("config", "get", "remote").out == "s3://a/b?mode=write s3://c/d\n"
    before = file.read_text()
    done = run("config", "set", "max-size", "1GB", "2GB")
    assert (done.code, file.read_text()) == (2, before)
    assert "takes one value" in done.err


def test_a_remote_is_printed_as_it_was_set(run: Callable[..., Result], file: Path) -> None:
    """With every parameter: the printed URL leads to the same server."""
    url = "s3://a/b?mode=write&claims=1&insecure=1&lifetime=3600s&endpoint=http://10.0.0.1:9000&region=eu"
    assert run("config", "set", "remotes", url, "s3://c/d").code == 0
    printed = run("config", "get", "remotes").out
    assert printed == f"{url} s3://c/d\n"
    assert run("config", "set", "remotes", *printed.split()).code == 0
    assert run("config", "get", "remotes").out == printed


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("dir", ['/srv/a"b']),
        ("dir", ["/srv/a]b\\\\c"]),
        ("remotes", ["s3://b?insecure=1&endpoint=http://[::1]:9000", "s3://c/d?lifetime=1.5s"]),
    ],
)
def test_what_was_set_can_be_changed_and_removed(
    run: Callable[..., Result], file: Path, monkeypatch: pytest.MonkeyPatch, key: str, values: list[str]
) -> None:
    """Brackets, quotes and backslashes included; the line is the only one that changes."""
    monkeypatch.delenv("TRTCACHE_DIR")
    file.parent.mkdir()
    file.write_text("readonly = true\n")
    for given in (values, values, values[:1]):
        assert run("config", "set", key, *given).code == 0
        assert run("config", "get", key).out.split() == given
    assert run("config", "unset", key).code == 0
    assert file.read_text() == "readonly = true\n"
    file.write_bytes(b"readonly = true\r\ncopy-up = true\r\n")  # written on Windows
    assert run("config", "unset", "copy-up").code == 0
    assert file.read_bytes() == b"readonly = true\r\n"


def test_a_written_setting_is_named_although_the_file_is_wrong(run: Callable[..., Result], file: Path) -> None:
    """The error is that of another setting."""
    file.parent.mkdir()
    file.write_text('direct = "x"\n')
    done = run("config", "set", "max-size", "5GB")
    assert done.code == 2
    assert "wrote max-size" in done.err
    assert "TRTCACHE_DIRECT" in done.err


def test_the_path_of_the_file_can_be_read_only(run: Callable[..., Result], file: Path) -> None:
    """It cannot be in the file itself."""
    assert run("config", "set", "readonly", "1").code == 0
    assert run("config", "get", "TRTCACHE_CONFIG").out == f"{file}\n"
    assert run("config", "unset", "TRTCACHE_CONFIG").code == 2


def test_a_relative_directory_becomes_absolute(
    run: Callable[..., Result], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has another working directory; and of the two variables for it one is set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRTCACHE_DIR")
    run("config", "set", "dir", "here")
    assert file.read_text() == f'dir = "{tmp_path}/here"\n'
    assert run("config", "set", "path", "/a:/b").code == 2


def test_the_environment_takes_precedence(
    run: Callable[..., Result], terminal: Callable[..., Result], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``set`` says so."""
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", "1GB")
    done = run("config", "set", "max-size", "2GB")
    assert done.err.splitlines()[1] == "in effect: 1 GB, from TRTCACHE_MAX_SIZE of the environment"
    assert "1 GB  (from: environment)" in terminal("config", "get", "max-size").out
    assert file.read_text() == 'max-size = "2GB"\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "max-siz", "5"), "did you mean 'max-size'?"),
        (("get", "max-siz"), "did you mean 'max-size'?"),
        (("unset", "max-siz"), "did you mean 'max-size'?"),
        (("set", "max-size", "lots"), "TRTCACHE_MAX_SIZE: 'lots' is not a size"),
        (("set", "readonly", "perhaps"), "TRTCACHE_READONLY: 'perhaps' is not 1 or 0"),
        (("set", "on-busy", "maybe"), "TRTCACHE_ON_BUSY: 'maybe'"),
        (("set", "log", "everything"), "TRTCACHE_LOG: 'everything'"),
        (("set", "trusted-keys", "foo"), "is not a public key"),
        (("set", "TRTCACHE_CONFIG", "x"), "only the environment sets the path"),
        (("set", "max-size"), "Missing argument"),
    ],
)
def test_a_wrong_setting_is_refused(
    run: Callable[..., Result], file: Path, arguments: tuple[str, ...], message: str
) -> None:
    """By the code that reads them, before anything is written."""
    file.parent.mkdir()
    file.write_text("readonly = true\n")
    done = run("config", *arguments)
    assert done.code == 2
    assert message in done.err
    assert file.read_text() == "readonly = true\n"


def test_an_invalid_setting_can_be_mended(run: Callable[..., Result], file: Path) -> None:
    """Although every other command refuses the file."""
    file.parent.mkdir()
    file.write_text('max-size = "lots"\n')
    assert run("config").code == 2
    assert run("config", "set", "max-size", "5GB").code == 0
    assert run("config", "get", "max-size").out == "5000000000\n"


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
    assert program(COMP_WORDS=f"trtcache show b3:{first[:5]}", **asked).out == f"plain,b3:{first[:16]}\n"
    assert program(COMP_WORDS=f"trtcache rm {first}", **asked).out == f"plain,{first}\n"
    assert program(COMP_WORDS="trtcache show ", TRTCACHE_DIR="/proc", **asked).out.strip() == ""
    assert "plain,prune" in program(COMP_WORDS="trtcache pr", _TRTCACHE_COMPLETE="bash_complete", COMP_CWORD="1").out
