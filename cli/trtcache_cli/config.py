"""``trtcache config``: show each setting, its value and its origin."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trtcache.config.environment import VARIABLES, Config, read_settings, settings_path
from trtcache.config.units import format_size
from trtcache_cli.output import on_terminal, print_json, print_table, print_tsv
from trtcache_cli.session import Session, examples, pass_session, session_options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


_MODES = {None: "", True: "require", False: "off"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: its effective value (None for no limit) and its origin."""

    variable: str
    value: str | float | bool | None
    origin: str


@click.command(epilog=examples("trtcache config --json"))
@session_options
@pass_session
def config(session: Session) -> None:
    """Show each TRTCACHE variable, its value and where the value comes from."""
    settings = settings_of(session.config(), os.environ, named=session.cache_dir is not None)
    if session.as_json:
        print_json({setting.variable: {"value": setting.value, "origin": setting.origin} for setting in settings})
        return
    rows = [(setting.variable, _text(setting), setting.origin) for setting in settings]
    if on_terminal():
        print_table(("VARIABLE", "VALUE", "FROM", "MEANING"), [(*row, VARIABLES[row[0]]) for row in rows])
    else:
        print_tsv(rows)


def settings_of(found: Config, environ: Mapping[str, str], *, named: bool) -> list[Setting]:
    """Return every variable with its value; ``named`` if the directory was given on the command line."""
    path = settings_path(environ)
    in_file = read_settings(path, VARIABLES)
    values: dict[str, str | float | bool | None] = {
        "TRTCACHE_DIR": str(found.root),
        "TRTCACHE_PATH": os.pathsep.join(map(str, (found.root, *found.lower))) if found.lower else "",
        "TRTCACHE_COPY_UP": found.copy_up,
        "TRTCACHE_MAX_SIZE": found.max_size_bytes,
        "TRTCACHE_MAX_ENTRIES": found.max_entries,
        "TRTCACHE_DISABLE": found.disable,
        "TRTCACHE_READONLY": found.readonly,
        "TRTCACHE_RECACHE": found.recache,
        "TRTCACHE_FORBID_BUILD": found.forbid_build,
        "TRTCACHE_NO_TORCH": found.no_torch,
        "TRTCACHE_ON_BUSY": found.busy.policy,
        "TRTCACHE_BUSY_TIMEOUT": found.busy.patience_s,
        "TRTCACHE_ON_MISS": found.on_miss,
        "TRTCACHE_SIGNATURES": _MODES[found.trust.required],
        "TRTCACHE_TRUSTED_KEYS": " ".join(map(str, found.trust.keys)),
        "TRTCACHE_SIGNING_KEY": str(found.trust.signing_key or ""),
        "TRTCACHE_REMOTE": " ".join(
            url.text + ("?mode=write" if url.writable else "") + ("&claims=1" if url.claims else "")
            for url in found.remotes.urls
        ),
        "TRTCACHE_REMOTE_CONNECT_TIMEOUT": found.remotes.connect_timeout_s,
        "TRTCACHE_REMOTE_TIMEOUT": found.remotes.timeout_s,
        "TRTCACHE_REMOTE_FLUSH": found.remotes.flush_s,
        "TRTCACHE_REMOTE_MIN_BUILD": found.remotes.min_build_s,
        "TRTCACHE_DIRECT": found.direct,
        "TRTCACHE_CONFIG": str(path),
        "TRTCACHE_QUIET": found.quiet,
        "TRTCACHE_LOG": found.log,
    }
    origins = {variable: _origin(variable, environ, in_file) for variable in VARIABLES}
    if named:
        origins["TRTCACHE_DIR"] = "--cache-dir"
    return [Setting(variable, values[variable], origins[variable]) for variable in VARIABLES]


def _origin(variable: str, environ: Mapping[str, str], in_file: Collection[str]) -> str:
    if environ.get(variable):
        return "environment"
    return "trtcache.toml" if variable in in_file else "default"


def _text(setting: Setting) -> str:
    if isinstance(setting.value, bool):
        return str(int(setting.value))
    if setting.value is None:
        return "no limit"
    if setting.variable == "TRTCACHE_MAX_SIZE":
        return format_size(int(setting.value))
    return str(setting.value)
