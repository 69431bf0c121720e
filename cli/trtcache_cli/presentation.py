"""``--color``, ``-q`` and ``-v``: options of the program that every command takes too."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from trtcache.config.environment import AREAS, LOG_VARIABLE, start_logging

_KEY = "trtcache.presentation"
_QUIET = "TRTCACHE_QUIET"
_AREAS = ("cli", "keys", "store")
"""Areas that one ``-v`` logs: what is looked up, what is found, and tracebacks of unexpected errors."""


@dataclass(slots=True)
class Presentation:
    """How a command prints.

    Attributes:
        color: whether to use colours; None if it depends on the output.
        quiet: whether to print only results, warnings and errors.
        verbose: how often ``-v`` was given.
    """

    color: bool | None = None
    quiet: bool = False
    verbose: int = 0


def presentation(ctx: click.Context | None = None) -> Presentation:
    """Return the presentation options of a context, by default of the running command; they can be changed."""
    ctx = ctx or click.get_current_context(silent=True)
    found: Presentation = ctx.meta.setdefault(_KEY, Presentation()) if ctx else Presentation()
    return found


def presentation_options() -> list[click.Parameter]:
    """Return the options, for the program and for each command."""
    color = click.Option(
        ["--color"],
        type=click.Choice(["auto", "always", "never"]),
        expose_value=False,
        callback=_set_color,
        help="Colours: auto (on a terminal), always (also in a pipe) or never.",
    )
    quiet = click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        callback=_set_quiet,
        help="No messages and no progress, only results, warnings and errors.",
    )
    verbose = click.Option(
        ["-v", "--verbose"],
        count=True,
        expose_value=False,
        callback=_set_verbose,
        help="Log what is looked up and found to standard error; -vv: all areas of TRTCACHE_LOG.",
    )
    return [color, quiet, verbose]


def add_presentation(command: click.Command) -> click.Command:
    """Add the options to a command and its subcommands, except an option whose name the command already uses.

    ``ls`` has a ``-q`` of its own.
    """
    names = {name for param in command.params for name in param.opts}
    command.params += [option for option in presentation_options() if not names & set(option.opts)]
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_presentation(below)
    return command


def _set_color(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is None and ctx.parent is not None:
        ctx.color = presentation(ctx).color  # the program's option is in effect
        return
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    color = {"always": True, "never": False}.get(value or "auto", False if plain else None)
    presentation(ctx).color = color
    above: click.Context | None = ctx
    while above is not None:
        above.color, above = color, above.parent  # what click.echo follows


def _set_quiet(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        shown = presentation(ctx)
        shown.quiet = True
        _refuse_quiet_and_verbose(shown)
        ctx.find_root().with_resource(_set_variable(_QUIET, "1"))


def _set_verbose(ctx: click.Context, _param: click.Parameter, value: int) -> None:
    if value and not ctx.resilient_parsing:
        shown = presentation(ctx)
        shown.verbose += value
        _refuse_quiet_and_verbose(shown)
        ctx.find_root().with_resource(_log_areas(tuple(AREAS) if shown.verbose > 1 else _AREAS))


def _refuse_quiet_and_verbose(shown: Presentation) -> None:
    if shown.quiet and shown.verbose:
        raise click.UsageError("use either -q or -v, not both")


@contextmanager
def _set_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable while the block runs; programs that the command starts inherit it."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def _log_areas(areas: tuple[str, ...]) -> Iterator[None]:
    """Log areas while the block runs."""
    loggers = [logging.getLogger(name) for area in areas for name in AREAS[area]]
    before = [logger.level for logger in loggers]
    start_logging({LOG_VARIABLE: ",".join(areas)})
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
