"""``trtcache config``: each setting, its value and where it comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trtcache.config import VARIABLES, Config
from trtcache.quantities import format_size
from trtcache_cli.output import on_terminal, print_aligned, print_json, print_tsv
from trtcache_cli.session import Session, examples, pass_session, session_options

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: what it amounts to (None for no limit), and who said so."""

    variable: str
    value: str | int | bool | None
    origin: str


@click.command(epilog=examples("trtcache config --json"))
@session_options
@pass_session
def config(session: Session) -> None:
    """Show each TRTCACHE variable, its value and where the value comes from."""
    settings = settings_of(session.config(), os.environ, named=session.cache_dir is not None)
    if session.as_json:
        print_json({one.variable: {"value": one.value, "origin": one.origin} for one in settings})
        return
    rows = [(one.variable, _text(one), one.origin) for one in settings]
    if on_terminal():
        print_aligned(("VARIABLE", "VALUE", "FROM", "MEANING"), [(*row, VARIABLES[row[0]]) for row in rows])
    else:
        print_tsv(rows)


def settings_of(found: Config, environ: Mapping[str, str], *, named: bool) -> list[Setting]:
    """Return every variable with its value; ``named`` if the directory was given on the command line."""
    values: dict[str, str | int | bool | None] = {
        "TRTCACHE_DIR": str(found.root),
        "TRTCACHE_MAX_SIZE": found.max_size_bytes,
        "TRTCACHE_DISABLE": found.disable,
        "TRTCACHE_READONLY": found.readonly,
        "TRTCACHE_RECACHE": found.recache,
        "TRTCACHE_FORBID_BUILD": found.forbid_build,
        "TRTCACHE_LOG": found.log,
    }
    origins = {variable: "environment" if environ.get(variable) else "default" for variable in VARIABLES}
    if named:
        origins["TRTCACHE_DIR"] = "--cache-dir"
    return [Setting(variable, values[variable], origins[variable]) for variable in VARIABLES]


def _text(setting: Setting) -> str:
    if isinstance(setting.value, bool):
        return str(int(setting.value))
    if setting.variable == "TRTCACHE_MAX_SIZE":
        return "no limit" if setting.value is None else format_size(int(setting.value))
    return str(setting.value)
