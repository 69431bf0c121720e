"""Every command's answer to wrong usage: one line that says what to do, exit code 2, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from trtcache_cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Result

VALIDATED = (click.Choice, click.types.IntParamType, click.types.FloatParamType)
REMEDIES = (" --help'", "did you mean", " one of ", "; ")


def _walk(command: click.Command, ctx: click.Context) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield tuple(ctx.command_path.split()[1:]), command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from _walk(below, click.Context(below, info_name=name, parent=ctx))


def _value(param: click.Parameter) -> str:
    """Return a value of the parameter's type; a path is one that exists."""
    if isinstance(param.type, click.Choice):
        return str(param.type.choices[0])
    if isinstance(param.type, click.Path):
        return "folder" if not param.type.file_okay else "file.pt2"
    return "folder" if param.name in ("path", "place") else "s3://bucket" if param.name == "url" else "abcd1234"


def _mistakes(command: click.Command) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is wrong, and the arguments."""
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    required = [_value(param) for param in arguments]
    for param in command.params:
        if isinstance(param, click.Option) and param.required:
            required += [param.opts[0], _value(param)]
    yield "option", (*required, "--no-such-option") if command.allow_interspersed_args else ("--no-such-option",)
    if any(param.required for param in arguments):
        yield "missing", ()
    if isinstance(command, click.Group):
        yield "command", ("no-such-command",)
    elif all(param.nargs != -1 for param in arguments):
        yield "extra", (*required, "one-too-many")
    for param in command.params:
        if isinstance(param, click.Option) and not param.is_flag and not param.count:
            if isinstance(param.type, VALIDATED):
                before = required if command.allow_interspersed_args else []
                yield param.opts[0], (*before, param.opts[0], "nonsense")
            yield f"{param.opts[0]} without a value", (param.opts[0],)


MISTAKES = [
    pytest.param((*path, *arguments), id=" ".join((*path, what)))
    for path, command in _walk(cli, click.Context(cli, info_name="trtcache", **cli.context_settings))
    for what, arguments in _mistakes(command)
]


@pytest.mark.parametrize("arguments", MISTAKES)
def test_wrong_usage(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """The same for each command and each kind of mistake; no directory is created."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.pt2").touch()
    done = run(*arguments)
    assert (done.code, done.out) == (2, ""), done.err
    (line,) = done.err.splitlines()
    assert line.startswith("trtcache: error: ")
    assert any(remedy in line for remedy in REMEDIES), line
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file.pt2"}
