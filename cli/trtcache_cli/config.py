"""``trtcache config``: show each setting, its value and its origin, and change the settings file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import nullcontext

import click

from trtcache.config.environment import (
    LISTS,
    VARIABLES,
    Config,
    format_value,
    lock_settings,
    parse_areas,
    read_settings,
    remove_setting,
    setting_name,
    settings_path,
    write_setting,
)
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import Value, format_size
from trtcache.errors import SettingsError, did_you_mean
from trtcache_cli.command_group import CommandGroup
from trtcache_cli.output import note, on_terminal, print_json, print_table, print_tsv, printable, shorten_middle
from trtcache_cli.presentation import presentation
from trtcache_cli.session import Session, examples, session_options

_NAMES = {setting_name(variable): variable for variable in VARIABLES if variable != "TRTCACHE_CONFIG"}
"""Name in the settings file -> variable."""

_VALUE = 40
"""Width of the column VALUE beside MEANING."""

_LEAST_MEANING = 30
"""Least width of the column MEANING; a narrower terminal gets a table without it."""

_DIRECTORIES = ("TRTCACHE_DIR", "TRTCACHE_PATH")


@frozen_dataclass
class Setting:
    """One variable: its effective value (None for no limit) and its origin."""

    variable: str
    value: str | float | bool | None
    origin: str


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    epilog=examples(
        "trtcache config",
        "trtcache config get max-size",
        "trtcache config set max-size 50GB",
        "trtcache config set remotes 's3://engines/main?mode=write' s3://engines/shared",
        "trtcache config unset max-size",
        "trtcache config --json",
    ),
)
@session_options
@click.pass_context
def config(ctx: click.Context, session: Session) -> None:
    """Show each TRTCACHE variable, its value and where the value comes from.

    'get' prints one; 'set' and 'unset' change the settings file, trtcache.toml in your configuration directory; its
    path is the value of TRTCACHE_CONFIG. A variable of the environment takes precedence over it.
    """
    if ctx.invoked_subcommand is None:
        _show(session)


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _NAMES if name.startswith(incomplete)]


_key_argument = click.argument(
    "variable", metavar="KEY", callback=lambda *given: _variable(given[2]), shell_complete=_complete
)


def _variable(key: str) -> str:
    """Return the variable of a setting, given as ``max-size`` or ``TRTCACHE_MAX_SIZE``."""
    if key == "TRTCACHE_CONFIG":
        return key
    name = setting_name(key) if key.startswith("TRTCACHE_") else key.lower().replace("_", "-")
    name = "remotes" if name == "remote" else name
    if name not in _NAMES:
        raise SettingsError(key, did_you_mean(name, list(_NAMES)))
    return _NAMES[name]


@config.command(name="get", epilog=examples("trtcache config get max-size", "trtcache config get TRTCACHE_DIR --json"))
@_key_argument
@session_options
def get_setting(session: Session, variable: str) -> None:
    """Print one setting.

    On a terminal, its meaning and where the value comes from are printed too. In a pipe a size is a number of bytes.
    KEY is the name in the file, such as max-size, or that of the variable.
    """
    setting = _effective(session, variable)
    if session.as_json:
        print_json(_document(setting))
    elif on_terminal():
        note(f"{setting_name(variable)}: {VARIABLES[variable]}")
        click.echo(f"{printable(_text(setting)) or '(empty)'}  (from: {setting.origin})")
    else:
        click.echo(printable(format_value(variable, setting.value)))


@config.command(name="set", epilog=examples("trtcache config set max-size 50GB", "trtcache config set readonly 1"))
@_key_argument
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
@session_options
def set_setting(session: Session, variable: str, values: tuple[str, ...]) -> None:
    """Write one setting to the settings file.

    The rest of the file is kept, comments included. VALUE is what the variable of the environment takes; 'remotes' and
    'trusted-keys' take several.
    """
    _refuse_path(variable)
    name, path = setting_name(variable), settings_path(os.environ)
    if len(values) > 1 and variable not in LISTS:
        raise click.UsageError(f"{name} takes one value, not {len(values)}")
    value = _parse_value(variable, " ".join(values), read_settings(path))
    with lock_settings(path):
        write_setting(path, name, value)
    _print_change(session, variable, f"wrote {name} = {json.dumps(value, ensure_ascii=False)} to", {"set": value})


@config.command(name="unset", epilog=examples("trtcache config unset max-size"))
@_key_argument
@session_options
def unset_setting(session: Session, variable: str) -> None:
    """Remove one setting from the settings file.

    A setting that is not in the file is not an error.
    """
    _refuse_path(variable)
    name = setting_name(variable)
    path = settings_path(os.environ)
    with lock_settings(path) if path.exists() else nullcontext():
        removed = remove_setting(path, name)
    _print_change(session, variable, f"removed {name} from" if removed else f"{name} is not in", {"removed": removed})


def _refuse_path(variable: str) -> None:
    """Refuse to write the path of the settings file into it.

    Raises:
        SettingsError: the variable is that of the path.
    """
    if variable == "TRTCACHE_CONFIG":
        raise SettingsError(variable, "only the environment sets the path of the settings file; 'config get' prints it")


def _parse_value(variable: str, text: str, in_file: Mapping[str, str]) -> Value:
    """Parse a value as the cache does, and return what the file gets: relative paths as absolute ones.

    Raises:
        SettingsError: the value is invalid, or contradicts another setting of the file.
    """
    given = {variable: text}
    found = Config.parse(given, given)
    parse_areas(found.log)
    if variable in _DIRECTORIES:  # the file may have one of them
        both = {name: value for name, value in in_file.items() if name in _DIRECTORIES} | given
        Config.parse({}, both)
    if variable in LISTS:
        return text.replace(",", " ").split() if variable == "TRTCACHE_TRUSTED_KEYS" else text.split()
    value = found.values()[variable]
    if variable in (*_DIRECTORIES, "TRTCACHE_SIGNING_KEY"):
        return str(value)
    if isinstance(value, bool):
        return value
    return int(text) if text.strip().isdecimal() else text


def _effective(session: Session, variable: str) -> Setting:
    return next(setting for setting in _settings(session) if setting.variable == variable)


def _document(setting: Setting) -> dict[str, object]:
    return {
        "key": setting_name(setting.variable),
        "variable": setting.variable,
        "value": setting.value,
        "origin": setting.origin,
    }


def _print_change(session: Session, variable: str, what: str, fields: Mapping[str, object]) -> None:
    """Print what was written, and which value is in effect."""
    path = settings_path(os.environ)
    if not session.as_json:
        note(f"{what} {path}")  # before the rest of the file is read, which may be wrong
    setting = _effective(session, variable)
    if session.as_json:
        print_json({**_document(setting), "path": str(path), **fields})
        return
    if setting.origin != "trtcache.toml":
        which = {"environment": f"{variable} of the environment", "default": "the default"}.get(
            setting.origin, setting.origin
        )
        note(f"in effect: {_text(setting) or '(empty)'}, from {which}")


def _show(session: Session) -> None:
    """Print all settings."""
    settings = _settings(session)
    if session.as_json:
        print_json({setting.variable: {"value": setting.value, "origin": setting.origin} for setting in settings})
        return
    rows = [(setting.variable, _text(setting), setting.origin) for setting in settings]
    if on_terminal():
        columns = shutil.get_terminal_size().columns
        names, origins = (max(len(row[place]) for row in rows) for place in (0, 2))
        if columns - names - origins - _VALUE - 6 >= _LEAST_MEANING:
            meant = [(row[0], shorten_middle(row[1], _VALUE), row[2], VARIABLES[row[0]]) for row in rows]
            print_table(("VARIABLE", "VALUE", "FROM", "MEANING"), meant, flexible="MEANING", wraps=True)
        else:
            print_table(("VARIABLE", "VALUE", "FROM"), rows, flexible="VALUE")
            note("trtcache config get KEY prints what one means")
    else:
        print_tsv(rows)


def _settings(session: Session) -> list[Setting]:
    """Return every variable with its value."""
    found, path, named = session.config(), settings_path(os.environ), session.cache_dir is not None
    in_file = read_settings(path)
    origins = {variable: _origin(variable, in_file) for variable in VARIABLES}
    # Either variable sets the directories: one in the environment overrides the other in the file.
    is_path = not named and origins["TRTCACHE_PATH"] != "default" and origins["TRTCACHE_DIR"] != "environment"
    values = found.values() | {"TRTCACHE_BUSY_TIMEOUT": found.busy.patience_s, "TRTCACHE_CONFIG": str(path)}
    if not is_path:
        values["TRTCACHE_PATH"] = ""
    if named:
        origins |= dict.fromkeys(_DIRECTORIES, "--cache-dir")
    elif is_path:
        origins["TRTCACHE_DIR"] = "TRTCACHE_PATH"
    elif origins["TRTCACHE_PATH"] != "default":
        origins["TRTCACHE_PATH"] = "TRTCACHE_DIR"
    if presentation().quiet:
        origins["TRTCACHE_QUIET"] = "-q"
    return [Setting(variable, values[variable], origins[variable]) for variable in VARIABLES]


def _origin(variable: str, in_file: Collection[str]) -> str:
    if os.environ.get(variable):
        return "environment"
    if variable in in_file and (variable not in os.environ or variable == "TRTCACHE_SIGNATURES"):
        return "trtcache.toml"
    return "default"


def _text(setting: Setting) -> str:
    if isinstance(setting.value, bool):
        return str(int(setting.value))
    if setting.value is None:
        return "no limit"
    if setting.variable == "TRTCACHE_MAX_SIZE":
        return format_size(int(setting.value))
    return str(setting.value)
