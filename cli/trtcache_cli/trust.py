"""``trtcache trust``: create signing keys, and manage trusted keys."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from trtcache.config.environment import (
    Config,
    lock_settings,
    make_folders,
    read_settings,
    setting_name,
    settings_path,
    write_setting,
)
from trtcache.config.signing_keys import PublicKey, SecretKey, parse_keys
from trtcache.errors import SettingsError, did_you_mean
from trtcache_cli.command_group import CommandGroup
from trtcache_cli.output import note, on_terminal, print_json, print_table, print_tsv
from trtcache_cli.session import Session, examples, session_options

_KEYS, _SIGNING_KEY = "TRTCACHE_TRUSTED_KEYS", "TRTCACHE_SIGNING_KEY"


@click.group(
    cls=CommandGroup,
    epilog=examples("trtcache trust keygen ci-main", "trtcache trust add ci-main:3b6a...", "trtcache trust ls --json"),
)
def trust() -> None:
    """Create signing keys, and manage trusted keys.

    Settings are written to trtcache.toml in your configuration directory ('trtcache config' prints the path). In a
    shared store, entries are used only if they are signed by a trusted key.
    """


@trust.command(epilog=examples("trtcache trust keygen ci-main", "trtcache trust keygen ci-pr --output ci-pr.secret"))
@click.argument("name")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Only write the secret key to this file."
)
@session_options
def keygen(session: Session, name: str, output: Path | None) -> None:
    """Create a key, and print its public half for others to trust.

    The secret key is written to a file that only you can read; without --output, it signs new entries from then on and
    is trusted by you.
    """
    key = SecretKey.generate(name)
    public = key.public
    path = output or settings_path(os.environ).parent / "keys" / f"{name}.secret"
    if output is None and not path.exists():
        _with(public)  # check for conflicts before the secret is written
    make_folders(path.parent)
    try:
        key.write(path)
    except FileExistsError as error:
        raise SettingsError("key", f"{path} already contains a key; choose another name") from error
    if output is None:
        _add(public)
        with lock_settings(settings_path(os.environ)):
            _set(_SIGNING_KEY, str(path))
        note(f"new entries are signed with {path}")
    if session.as_json:
        print_json({"name": name, "public": str(public), "secret": str(path.absolute())})
    else:
        click.echo(str(public))


@trust.command(
    epilog=examples("trtcache trust add ci-main:3b6a...", "trtcache trust add ci-main:3b6a... --until 2027-01-31")
)
@click.argument("key", metavar="NAME:HEX")
@click.option("--until", metavar="DATE", help="Trust it until the end of this day (UTC).")
@session_options
def add(session: Session, key: str, until: str | None) -> None:
    """Trust a public key."""
    added = PublicKey.parse(key if until is None else f"{key}:{until}")
    if added.until is not None and added.until < datetime.now(UTC).date():
        raise click.BadParameter(f"{added.until} has passed: the key would not be trusted", param_hint="--until")
    _add(added)
    if session.as_json:
        print_json({"added": str(added)})


@trust.command(epilog=examples("trtcache trust rm ci-pr"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@session_options
def rm(session: Session, names: tuple[str, ...]) -> None:
    """Stop trusting keys. Nothing is deleted: where signatures are required, their entries are misses, and are rebuilt.

    A private directory that requires none still uses what it has fetched before: see docs/remote.md.
    """
    signing = _signing_key(session.config())
    with lock_settings(settings_path(os.environ)):
        known = _in_file()
        for name in names:
            if name not in {key.name for key in known}:
                listed = did_you_mean(name, [key.name for key in known]) if known else "no key is trusted"
                raise SettingsError(str(settings_path(os.environ)), f"no key is named {name!r}: {listed}")
        kept = [key for key in known if key.name not in names]
        _write(kept)
    if signing is not None and signing in {key.raw for key in known} - {key.raw for key in kept}:
        note("it signs new entries here, so nothing is stored until there is another: trtcache trust keygen NAME")
    if session.as_json:
        print_json({"removed": list(names)})


@trust.command(epilog=examples("trtcache trust ls", "trtcache trust ls --json"))
@session_options
def ls(session: Session) -> None:
    """List the trusted keys, and the one that signs new entries."""
    config = session.config()
    signing = _signing_key(config)
    rows = [
        (key.name, key.raw.hex(), key.until.isoformat() if key.until else "", "signs" if key.raw == signing else "")
        for key in config.trust.keys
    ]
    if session.as_json:
        fields = ("name", "key", "until", "signs")
        print_json({"keys": [dict(zip(fields, (*row[:2], row[2] or None, bool(row[3])), strict=True)) for row in rows]})
    elif on_terminal():
        print_table(("NAME", "KEY", "UNTIL", "SIGNS"), rows)
    else:
        print_tsv(rows)


def _signing_key(config: Config) -> bytes | None:
    path = config.trust.signing_key
    return None if path is None else SecretKey.read(path).public.raw


def _in_file() -> list[PublicKey]:
    found = read_settings(settings_path(os.environ))
    return list(parse_keys(found.get(_KEYS, ""), _KEYS))


def _add(key: PublicKey) -> None:
    with lock_settings(settings_path(os.environ)):
        _write(_with(key))


def _with(key: PublicKey) -> list[PublicKey]:
    known = _in_file()
    for other in known:
        if other.name == key.name and other.raw != key.raw:
            raise SettingsError("key", f"another key is named {key.name!r}; remove it first with 'trtcache trust rm'")
    return [*(other for other in known if other.raw != key.raw), key]


def _write(keys: Sequence[PublicKey]) -> None:
    _set(_KEYS, [str(key) for key in keys])


def _set(variable: str, value: str | list[str]) -> None:
    write_setting(settings_path(os.environ), setting_name(variable), value)
    if os.environ.get(variable):
        note(f"{variable} is set in the environment, which overrides the file")
