"""Answers to the mistakes of a first hour: usage errors exit alike and at once, and what was left is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from trtcache_cli.selftest_result import FAILED, StepResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("build", "nofile.pt2"), 1, "nofile.pt2: the file does not exist"),
        (("build", "nofile.pt2", "--shape", "x=1"), 1, "nofile.pt2: the file does not exist"),
        (("why", "nofile.pt2"), 1, "nofile.pt2: the file does not exist"),
        (("build", "x.pt2", "--backend", "aot_inducto"), 2, "did you mean 'aot_inductor'?"),
        (("why", "x.pt2", "--backend", "foo"), 2, "'foo': unknown; known: aot_inductor"),
        (("trust", "rm", "nobody"), 2, "no key is named 'nobody': no key is trusted"),
        (("why", "nofile"), 5, "'nofile' is not a key, which has digits 0-9 and a-f"),
        (("refit", "nofile", "--weights", "x"), 5, "'nofile' is not a key"),
        (("ls", "--sort", "sze"), 2, "'sze' is not one of"),
        (("build", ""), 1, "it is a directory; give a .pt2 or .onnx file, or MODULE:FUNCTION"),
        (("why", "b3:"), 5, "the key is empty"),
        (("why", "6f9c"), 5, "no entry has a key that starts with '6f9c'"),
    ],
)
def test_mistakes_are_answered_without_torch(
    program: Callable[..., Result], tmp_path: Path, args: tuple[str, ...], code: int, message: str
) -> None:
    """None of these answers needs an import of torch, which takes most of three seconds."""
    done = program(*args, PYTHONPROFILEIMPORTTIME="1", TRTCACHE_CONFIG="", XDG_CONFIG_HOME=str(tmp_path))
    lines = done.err.splitlines()
    assert not [line for line in lines if line.endswith("| torch")]
    (error,) = [line for line in lines if line.startswith("trtcache: error: ")]
    assert (done.code, message in error) == (code, True), error


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("config", "gte"), "config command 'gte': unknown; did you mean 'get'? known: get, set, unset"),
        (("trust", "ad"), "trust command 'ad': unknown; did you mean 'add'? known: add, keygen, ls, rm"),
    ],
)
def test_an_unknown_command_of_a_command_is_answered_alike(
    run: Callable[..., Result], args: tuple[str, ...], message: str
) -> None:
    """As an unknown command of the program."""
    done = run(*args)
    assert (done.code, done.out, done.err) == (2, "", f"trtcache: error: {message}\n")


def test_quiet_is_not_taken_for_a_variable(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in effect, and its origin is the option."""
    assert run("config", "-q", "--json").json["TRTCACHE_QUIET"] == {"value": True, "origin": "-q"}
    monkeypatch.setenv("TRTCACHE_QUIET", "1")
    assert run("config", "--json").json["TRTCACHE_QUIET"] == {"value": True, "origin": "environment"}


@pytest.mark.parametrize("command", ["build", "lower", "partition", "tune", "export", "why"])
def test_an_unknown_backend_is_wrong_usage(run: Callable[..., Result], file: Path, command: str) -> None:
    """Each command exits with 2, as for any other wrong option."""
    more = ("-o", file.with_name("out.pt2")) if command == "export" else ()
    assert run(command, file, "--backend", "foo", *more).code == 2


def test_an_unknown_target_is_wrong_usage(run: Callable[..., Result], file: Path) -> None:
    """It exits with 2, as an unknown backend does."""
    done = run("build", file, "--target", "foo")
    assert (done.code, "target 'foo': unknown; known: native" in done.err) == (2, True)


def test_the_help_of_shape_is_of_its_command(run: Callable[..., Result]) -> None:
    """Ranges of sizes are for ONNX files, which three commands do not take."""
    for command in ("lower", "partition", "tune", "export"):
        assert "ONNX min:opt:max" not in " ".join(run(command, "--help").out.split())
    assert "ONNX min:opt:max" in " ".join(run("build", "--help").out.split())


@pytest.mark.slow
def test_a_wrong_shape_is_answered_in_words(run: Callable[..., Result], file: Path) -> None:
    """An exported program has sizes of its own, which the answer names."""
    done = run("tune", file, "--shape", "x=1", "--calls", "1")
    assert done.code == 2
    assert "an argument of affine.pt2 has other names or sizes: arguments: expected one of 0, got x" in done.err


@pytest.mark.parametrize("command", ["build", "export", "infer", "tune", "warm", "warm --plan"])
def test_a_mistyped_cache_directory_is_not_created(
    run: Callable[..., Result], file: Path, tmp_path: Path, command: str
) -> None:
    """Everything would be built again in it."""
    name, *options = command.split()
    (tmp_path / "matrix.toml").write_text(f'[[cells]]\nfile = "{file}"\n')
    subject = tmp_path / "matrix.toml" if name == "warm" else file
    options += ["-o", str(tmp_path / "out.pt2")] if name == "export" else []
    done = run(name, subject, *options, "--cache-dir", tmp_path / "none")
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines()[-1].endswith("none is not a trtcache store: the directory does not exist")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("command", "option"), [("build", "-o"), ("export", "-o"), ("partition", "--svg")])
def test_the_program_is_not_overwritten(run: Callable[..., Result], file: Path, command: str, option: str) -> None:
    """What is written must be another file."""
    before = file.read_bytes()
    done = run(command, file, option, file)
    assert (done.code, "is the program; choose another file" in done.err) == (2, True)
    assert file.read_bytes() == before


def test_a_disabled_cache_is_not_warmed(
    run: Callable[..., Result], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is built for nothing."""
    (tmp_path / "matrix.toml").write_text(f'[[cells]]\nfile = "{file}"\n')
    monkeypatch.setenv("TRTCACHE_DISABLE", "1")
    done = run("warm", tmp_path / "matrix.toml")
    assert (done.code, "TRTCACHE_DISABLE: engines are built into the cache" in done.err) == (2, True)


@pytest.mark.parametrize("command", [("prune", "--max-size", "0"), ("clean",)])
@pytest.mark.parametrize("answer", ["n\n", "\x04"])
def test_no_and_the_end_of_input_say_that_nothing_was_removed(
    put: Callable[..., str], terminal: Callable[..., Result], command: tuple[str, ...], answer: str
) -> None:
    """And nothing was."""
    key = put(1)
    done = terminal(*command, answer=answer)
    assert (done.code, "nothing was removed" in done.out) == (130, True)
    assert key in terminal("ls", "-q").out


def test_an_interrupted_build_says_what_it_left(file: Path) -> None:
    """Ctrl-C while torch is imported or the program is built."""
    child = subprocess.Popen(
        [sys.executable, "-m", "trtcache_cli", "build", str(file)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TRTCACHE_LOG": "keys"},
    )
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith("building"):
            break
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert "trtcache: interrupted; complete entries stay in the cache" in child.stderr.read()
    child.stderr.close()
    # CPython ends by the signal, which a shell reports as 130 too, if C code was running Python code (3.11).
    assert child.wait() in {130, -signal.SIGINT}


def test_cells_of_the_self_test_have_no_tabs() -> None:
    """A compiler's message of several lines is one cell."""
    result = StepResult("build", FAILED, "error:\n\tno\tsuch file")
    assert result.row[-1] == "error: no such file"
