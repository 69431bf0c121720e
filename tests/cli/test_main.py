"""The entry point: help, errors and exit codes."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import trtcache.errors
from trtcache.errors import TrtcacheError
from trtcache.store.disk import DiskStore
from trtcache_cli import ls, main
from trtcache_cli.main import COMMANDS, GROUPS, cli

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Result

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
WRITTEN_HERE = [name for name in COMMANDS if name != "demo"]


@pytest.mark.parametrize("name", WRITTEN_HERE)
def test_every_command_has_help_with_examples(run: Callable[..., Result], name: str) -> None:
    """-h and --help are equal, and the first sentence is the command's description."""
    done = run(name, "-h")
    assert done.code == 0
    assert done.out == run(name, "--help").out
    assert f"trtcache {name}" in done.out.partition("Examples:")[2]


@pytest.mark.parametrize("name", [name for name in WRITTEN_HERE if name not in {"completion", "run", "selftest"}])
def test_every_command_takes_the_common_options(name: str) -> None:
    """--json and --cache-dir are everywhere."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for one in command.commands.values() if isinstance(command, click.Group) else [command]:
        options = {option for param in one.params for option in param.opts}
        assert {"--json", "--cache-dir"} <= options


def test_the_help_lists_commands_and_exit_codes(run: Callable[..., Result]) -> None:
    """In groups and in the order of use, not of the alphabet, and without importing them."""
    out = run("--help").out
    listed = [name for name in re.findall(r"^  ([a-z]+)  ", out, re.MULTILINE) if name in COMMANDS]
    assert listed == [name for names in GROUPS.values() for name in names]
    assert all(f"{title}:" in out for title in GROUPS)
    assert "Exit codes:" in out


def test_the_version_is_printed(run: Callable[..., Result]) -> None:
    """By its distribution's metadata."""
    assert re.fullmatch(r"trtcache \d+\.\d+\.\d+\S*\n", run("--version").out)
    assert run("-V").out == run("version").out == run("--version").out


def test_help_is_a_word_too(run: Callable[..., Result]) -> None:
    """``help COMMAND`` is ``COMMAND --help``."""
    assert run("help").out == run("--help").out
    assert run("help", "ls").out == run("-q", "help", "ls").out == run("ls", "--help").out
    assert run("help", "config", "set").out == run("config", "set", "--help").out
    assert "command 'nonsense': unknown" in run("help", "nonsense").err


def test_the_documentation_has_every_command_and_option() -> None:
    """docs/cli.md is kept up with the code."""
    text = DOCS.read_text(encoding="utf-8")
    for name in WRITTEN_HERE:
        assert f"## trtcache {name}\n" in text or f"`trtcache {name}`" in text, name
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        below = command.commands.values() if isinstance(command, click.Group) else []
        for param in [*command.params, *(param for one in below for param in one.params)]:
            if isinstance(param, click.Option):
                assert f"`{param.opts[-1]}" in text, (name, param.opts)


def _all_errors(base: type[TrtcacheError] = TrtcacheError) -> set[type[TrtcacheError]]:
    return {base}.union(*(_all_errors(one) for one in base.__subclasses__()))


def test_every_exit_code_is_documented(run: Callable[..., Result]) -> None:
    """In the help and in docs/cli.md."""
    codes = {error.exit_code for error in _all_errors() if error.__module__.startswith(trtcache.errors.__name__)} | {
        0,
        2,
        130,
    }
    documented = {int(code) for code in re.findall(r"^  +(\d+) ", run("--help").out, re.MULTILINE)}
    in_docs = {int(code) for code in re.findall(r"^\| (\d+) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)}
    assert codes == documented == in_docs


def test_an_error_is_one_line(run: Callable[..., Result], tmp_path: Path) -> None:
    """On standard error, with the program's name and no traceback."""
    done = run("ls", "--cache-dir", tmp_path / "missing")
    assert (done.code, done.out) == (3, "")
    assert done.err == f"trtcache: error: {tmp_path}/missing is not a trtcache store: the directory does not exist\n"


@pytest.mark.parametrize("args", [["lss"], ["ls", "--nope"], ["ls", "--limit", "-1"], ["ls", "extra"]])
def test_wrong_usage_exits_with_2(run: Callable[..., Result], args: list[str]) -> None:
    """One line here too."""
    done = run(*args)
    assert done.code == 2
    assert done.err.startswith("trtcache: error: ")


def test_a_wrong_variable_exits_with_2(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names it."""
    monkeypatch.setenv("TRTCACHE_MAX_SIZE", "plenty")
    done = run("ls")
    assert done.code == 2
    assert "TRTCACHE_MAX_SIZE" in done.err


def test_a_directory_that_is_not_ours_exits_with_3(run: Callable[..., Result], tmp_path: Path) -> None:
    """And nothing is written into it."""
    (tmp_path / "photo.jpg").touch()
    done = run("clean", "--all", "-y", "--cache-dir", tmp_path)
    assert done.code == 3
    assert "is not a trtcache store" in done.err
    assert (tmp_path / "photo.jpg").exists()


def test_an_unsafe_directory_exits_with_3(run: Callable[..., Result], put: Callable[..., str], root: Path) -> None:
    """The message has the command that helps."""
    put(1)
    root.chmod(0o777)
    done = run("ls")
    root.chmod(0o700)
    assert done.code == 3
    assert "chmod" in done.err


def test_an_error_of_the_system_exits_with_1(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails has no traceback either."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", "/cache")

    monkeypatch.setattr(main.cli, "main", fail)
    done = run("ls")
    assert done.code == 1
    assert done.err == "trtcache: error: /cache: Input/output error\n"


def test_a_defect_is_one_line(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever C++ has put behind the first line of its message."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such kernel\nException raised from\nframe #0: 0x7f")

    monkeypatch.setattr(main.cli, "main", fail)
    expected = "trtcache: error: unexpected RuntimeError: no such kernel; TRTCACHE_LOG=cli shows where\n"
    assert run("ls").err == expected


def test_the_end_of_a_file_is_not_an_interruption(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """An EOFError of any command is reported; click takes it for Ctrl-C."""

    def stopped(session: object) -> None:
        raise EOFError("no data left")

    monkeypatch.setattr("trtcache_cli.session.Session.store", stopped)
    done = run("ls")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "unexpected EOFError: no data left" in done.err


def test_characters_that_the_output_lacks_are_escaped(put: Callable[..., str], program: Callable[..., Result]) -> None:
    """A name in another script, with an encoding that does not have it."""
    put(1, name="\u4e2d")
    latin, c_locale = {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for environ in (latin, c_locale):
        done = program("ls", **environ)
        assert (done.code, done.err) == (0, "")
        assert "\\u4e2d" in done.out


def test_the_bytes_of_a_directory_are_printed_as_they_are() -> None:
    """In a locale that does so, a script gets the directory's name."""
    command, folder = [sys.executable, "-m", "trtcache_cli", "dir"], b"/nowhere/\xff"
    environ = {**os.environ, "LC_ALL": "C.UTF-8", "TRTCACHE_DIR": os.fsdecode(folder)}
    assert subprocess.run(command, env=environ, capture_output=True, check=True).stdout == folder + b"\n"


def test_a_full_disk_is_an_error_of_standard_output(put: Callable[..., str]) -> None:
    """Whether the output is written at once or at the end, is larger than a buffer, or has none."""
    put(1), put(2, name="n" * 9000)
    for arguments, unbuffered in itertools.product((["ls"], ["ls", "--json"], ["dir"], ["--help"]), ("", "1")):
        with Path("/dev/full").open("wb") as full:
            command = [sys.executable, "-m", "trtcache_cli", *arguments]
            environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environ, check=False)
        assert (done.returncode, done.stderr) == (1, "trtcache: error: standard output: No space left on device\n")


def test_interruption_exits_with_130(put: Callable[..., str]) -> None:
    """Ctrl-C says so."""
    put(1)
    program = """
import os, signal, trtcache.store.catalog, trtcache_cli.main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
trtcache.store.catalog.read_rows = lambda *_: os.kill(os.getpid(), signal.SIGINT)
trtcache_cli.main.main()
"""
    done = subprocess.run([sys.executable, "-c", program, "ls"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "trtcache: interrupted")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ls", "--help"], ["config"], ["dir"], ["ls"]])
def test_a_reader_that_has_left_is_not_an_error(arguments: list[str], put: Callable[..., str]) -> None:
    """Whatever printed: click's help, or lines one by one, or all at once."""
    put(1)
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "trtcache_cli", *arguments]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=os.environ, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_pipe_of_another_process_is_an_error(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """Success is for the reader of standard output alone."""
    ours, theirs = os.pipe()
    os.close(ours)
    monkeypatch.setattr(ls, "load_records", lambda _store: os.write(theirs, b"lost"))
    failed = run("ls")
    os.close(theirs)
    assert (failed.code, failed.err) == (1, "trtcache: error: another process closed a pipe\n")


def test_a_broken_pipe_is_not_an_error(put: Callable[..., str], root: Path) -> None:
    """A broken pipe is quiet."""
    from crowd import crowded

    crowded(root, 2000)
    command = f"set -o pipefail; {sys.executable} -m trtcache_cli ls | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ, check=False)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


def test_the_module_is_the_program(program: Callable[..., Result], root: Path) -> None:
    """Python -m trtcache_cli is trtcache."""
    assert program("dir").out == f"{root}\n"


def test_a_reader_of_messages_that_has_left_changes_nothing(put: Callable[..., str], root: Path) -> None:
    """The work is done without the messages, and a failure keeps its exit code."""
    put(1)
    ours, theirs = os.pipe()
    os.close(ours)

    def code_of(*arguments: str) -> int:
        command = [sys.executable, "-m", "trtcache_cli", *arguments]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, env=os.environ, check=False).returncode

    codes = [code_of("show", "ffff"), code_of("prune", "--max-size", "1B", "-y")]
    os.close(theirs)
    assert codes == [5, 0]
    assert list(DiskStore.open(root).scan()) == []


def test_a_closed_standard_input_is_no_terminal(put: Callable[..., str], root: Path) -> None:
    """The commands that ask say so, or do what they need not ask for."""
    digest = put(1)
    command = f"{sys.executable} -m trtcache_cli clean <&-; {sys.executable} -m trtcache_cli rm -y {digest} <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ, check=False)
    assert (done.returncode, "AttributeError" in done.stderr) == (0, False)
    assert "is not a terminal" in done.stderr
    assert list(DiskStore.open(root).scan()) == []
