"""Read-only commands: they create no store, escape control characters, and fail in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from trtcache_cli import ls
from trtcache_cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtcache.store.disk import DiskStore

    from .conftest import Result

HOSTILE = "a\x1b[2J\tb\nc\r\x07\u202ed"
ESCAPED = "a\\x1b[2J\\tb\\nc\\r\\x07\\u202ed"


@pytest.mark.parametrize("command", ["ls", "stats", "verify", "prune --dry-run", "clean --dry-run", "clean"])
@pytest.mark.parametrize("there", [False, True])
def test_looking_makes_no_store(run: Callable[..., Result], root: Path, command: str, there: bool) -> None:
    """An empty directory stays empty, and a missing one stays missing."""
    if there:
        root.mkdir(mode=0o700)
    assert run(*command.split()).code == 0
    assert root.exists() == there
    assert not there or list(root.iterdir()) == []


@pytest.mark.parametrize("command", ["show ffff", "why ffff", "diff ffff ffff"])
def test_looking_for_a_key_makes_no_store(run: Callable[..., Result], root: Path, command: str) -> None:
    """An empty directory has no entry, and stays empty."""
    root.mkdir(mode=0o700)
    assert run(*command.split()).code == 5
    assert list(root.iterdir()) == []


def test_text_that_prints_is_left_alone() -> None:
    """Letters of any language are text; what a terminal obeys is not."""
    assert printable("Größe 模型") == "Größe 模型"
    assert printable(HOSTILE) == ESCAPED
    assert printable("\ud800") == "\\ud800"


def test_names_cannot_command_a_terminal(
    run: Callable[..., Result], terminal: Callable[..., Result], put: Callable[..., str]
) -> None:
    """Names and provenance come out escaped, on a terminal and in a pipe; JSON escapes by itself."""
    digest = put(1, name=HOSTILE, provenance={HOSTILE: HOSTILE})
    other = put(2, name=HOSTILE)
    for command in (("ls",), ("show", digest), ("prune", "--dry-run", "--max-size", "1")):
        assert ESCAPED in run(*command).out
    assert ESCAPED in run("why", digest).err
    assert run("ls", "--json").json["entries"][0]["name"] == HOSTILE
    for command in (("ls",), ("show", other)):
        shown = terminal(*command).out
        assert ESCAPED in shown
        assert "\x1b[2J" not in shown


def test_no_difference_is_reported(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """An entry equals itself: nothing on standard output, and a message."""
    digest = put(1)
    same = run("diff", digest, digest)
    assert (same.code, same.out, same.err) == (0, "", "no difference\n")


@pytest.mark.parametrize("command", ["ls", "dir --json", "stats"])
def test_a_closed_standard_output_is_handled(put: Callable[..., str], command: str) -> None:
    """A process that was started without one succeeds."""
    put(1)
    line = f"{sys.executable} -m trtcache_cli {command} >&-"
    done = subprocess.run(["/bin/sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_directory_that_cannot_be_entered_is_unusable(
    run: Callable[..., Result], put: Callable[..., str], store: DiskStore, tmp_path: Path
) -> None:
    """The error is that of the library, and the exit code 3."""
    put(1)
    tmp_path.chmod(0o700)
    named, other = ("--cache-dir", store.root), tmp_path / "other"
    commands = [("ls",), ("ls", *named), ("rm", *named, "ab"), ("clean", "-n"), ("sync", "-n", store.root, other)]
    for command in commands:
        run(*command)  # another user may not import what is in this one's folders
    os.seteuid(65534)
    try:
        done = [run(*command) for command in commands]
    finally:
        os.seteuid(0)
    for command, result in zip(commands, done, strict=True):
        assert (result.code, result.err.count("\n"), "Permission denied" in result.err) == (3, 1, True), command


def test_a_full_standard_output_is_one_line(put: Callable[..., str]) -> None:
    """What could not be written is an error, without a traceback."""
    put(1)
    line = f"{sys.executable} -m trtcache_cli ls >/dev/full"
    done = subprocess.run(["/bin/sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in done.stderr


def test_a_defect_is_one_line(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback is printed on request."""
    monkeypatch.setattr(ls, "load_records", lambda _store: 1 / 0)
    failed = run("ls")
    assert failed.code == 1
    assert failed.err == (
        "trtcache: error: unexpected ZeroDivisionError: division by zero; TRTCACHE_LOG=cli shows where\n"
    )


def test_what_is_no_program_is_one_line(program: Callable[..., Result], tmp_path: Path) -> None:
    """A file that is missing, of another kind, or another archive is named, and torch logs no traceback."""
    pytest.importorskip("torch")
    text, archive = tmp_path / "text.pt2", tmp_path / "archive.pt2"
    text.write_text("no archive")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a", "b")
    failures = [program("why", path) for path in (tmp_path / "gone.pt2", text, archive)]
    assert [one.err.partition(".pt2: ")[2] for one in failures] == [
        "the file does not exist\n",
        "it is no exported program; give a file that torch.export.save wrote\n",
        "it is a zip archive, but not an exported program; save it again with torch.export.save\n",
    ]
    assert {one.code for one in failures} == {1}
