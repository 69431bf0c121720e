"""``--color``, ``-q`` and ``-v``: before and after every command, in a pipe and on a terminal."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click
import pytest

from trtcache_cli.main import COMMANDS, cli

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Result

BOLD = "\x1b["


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_them(name: str) -> None:
    """Once each, also after several look-ups; the -q of ls is its own."""
    cli.get_command(click.Context(cli), name)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    below = list(command.commands.values()) if isinstance(command, click.Group) else []
    for one in (command, *below):
        options = [option for param in one.params for option in param.opts]
        assert all(options.count(option) == 1 for option in ("--color", "-q", "--quiet", "-v", "--verbose"))


@pytest.mark.usefixtures("store")
def test_colours_in_a_pipe(program: Callable[..., Result]) -> None:
    """None, unless ``always`` is given, before or after the command: then all that a terminal gets."""
    assert BOLD not in program("stats").out
    for arguments in (("--color", "always", "stats"), ("stats", "--color=always")):
        out = program(*arguments).out
        assert BOLD in out
        assert "\t" not in out
    assert BOLD not in program("--color", "always", "stats", "--color", "never").out


@pytest.mark.usefixtures("store")
def test_colours_on_a_terminal(terminal: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless ``never``, NO_COLOR or a dumb terminal; ``always`` takes precedence over NO_COLOR."""
    assert BOLD in terminal("stats").out
    assert BOLD not in terminal("stats", "--color", "never").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert BOLD not in terminal("stats").out
    assert BOLD in terminal("stats", "--color", "always").out
    monkeypatch.setenv("NO_COLOR", "")
    assert BOLD in terminal("stats").out


@pytest.mark.usefixtures("store")
def test_a_dumb_terminal_gets_no_escape_sequences(
    terminal: Callable[..., Result], put: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither colours nor progress bars. ``env`` replaces the TERM that the terminal sets."""
    put(1)
    for command in (("stats",), ("verify",), ("ls",)):
        assert "\x1b" not in terminal(*command, term="dumb").out


def test_quiet_leaves_results_and_errors(
    run: Callable[..., Result], put: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages and progress are gone; compile is silent too, and the environment is as before."""
    put(1)
    assert run("stats", "--zero").err
    for arguments in (("-q", "stats", "--zero"), ("stats", "--zero", "--quiet"), ("-q", "clean", "-y")):
        done = run(*arguments)
        assert (done.code, done.err) == (0, "")
    assert run("-q", "config", "--json").json["TRTCACHE_QUIET"]["value"] is True
    assert "TRTCACHE_QUIET" not in os.environ
    failed = run("show", "00", "-q")
    assert (failed.code, failed.err.count("\n")) == (5, 1)
    put(2)
    assert run("-q", "ls").rows[0][1] == "test"
    assert len(run("ls", "-q").rows[0]) == 1


def test_verbose_logs_areas(
    run: Callable[..., Result], put: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Until the command ends; with -q it is wrong usage."""
    levels = {name: logging.getLogger(name).level for name in ("trtcache_cli", "trtcache.lowering", "trtcache.store")}
    seen: dict[str, list[int]] = {}
    command = cli.get_command(click.Context(cli), "dir")
    assert command is not None
    inner = command.callback
    assert inner is not None

    def look(*args: object, **kwargs: object) -> object:
        seen["now"] = [logging.getLogger(name).level for name in levels]
        return inner(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "callback", look)
        run("dir", "-v")
        assert seen["now"] == [logging.DEBUG, levels["trtcache.lowering"], logging.DEBUG]
        for arguments in (("-vv", "dir"), ("-v", "dir", "--verbose")):
            run(*arguments)
            assert seen["now"] == [logging.DEBUG] * 3
    assert {name: logging.getLogger(name).level for name in levels} == levels
    assert run("dir", "-q", "-v").code == run("-q", "dir", "-v").code == 2
