"""The settings file ``trtcache.toml``, overridden by the environment.

It is read from the user's own configuration directory only: a file in a project or in a shared store could make its
author's keys trusted.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING

from trtcache.config.folders import absolute, config_folder
from trtcache.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

NAME = "trtcache.toml"
_MAX_BYTES = 1 << 20


def settings_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the settings file: ``TRTCACHE_CONFIG``, or in the user's configuration directory.

    Raises:
        SettingsError: ``TRTCACHE_CONFIG`` is not a valid path.
    """
    named = environ.get("TRTCACHE_CONFIG")
    return absolute(named, "TRTCACHE_CONFIG") if named else config_folder("trtcache") / NAME


def setting_name(variable: str) -> str:
    """Return the name of a variable's setting in the file: ``TRTCACHE_MAX_SIZE`` is ``max-size``."""
    return variable.removeprefix("TRTCACHE_").lower().replace("_", "-")


def read_settings(path: Path, variables: Collection[str]) -> dict[str, str]:
    """Return the file's settings as text by variable; empty if the file does not exist.

    Raises:
        SettingsError: it is not TOML, has an unknown setting, or other users can write to it.
    """
    text = _read(path)
    if text is None:
        return {}
    names = {setting_name(variable): variable for variable in variables}
    settings = {}
    for name, value in _parse(text, path).items():
        if name not in names:
            raise SettingsError(f"{path}: {name}", did_you_mean(name, list(names)))
        settings[names[name]] = _text(value, f"{path}: {name}")
    return settings


def write_setting(path: Path, name: str, value: str | list[str]) -> None:
    """Set one setting in the file, and keep the rest unchanged, including comments.

    Raises:
        SettingsError: the file is not TOML, or its formatting requires a change by hand.
        OSError: it cannot be written.
    """
    text = _read(path) or ""
    before = _parse(text, path)
    shown = json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        shown = (
            "[" + "".join(f"\n  {json.dumps(item, ensure_ascii=False)}," for item in value) + ("\n]" if value else "]")
        )
    line = re.compile(rf"^{re.escape(name)}[ \t]*=[ \t]*(\[[^\]]*\]|\"[^\"\n]*\"|'[^'\n]*')[ \t]*", re.MULTILINE)
    replaced, count = line.subn(lambda _: f"{name} = {shown}", text, count=1)
    changed = replaced if count else f"{name} = {shown}\n{text}"
    if _parse_toml(changed) != {**before, name: value}:
        raise SettingsError(f"{path}: {name}", f"its formatting is not supported; set it by hand: {name} = {shown}")
    _write(path, changed)


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(str(path), f"it cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(str(path), "it is not a file")
        private_group = status.st_gid == status.st_uid == os.geteuid() != 0  # a user's private group, and umask 002
        others = 0o002 if private_group else 0o022
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & others:
            raise SettingsError(str(path), f"other users can write to it; run: chmod go-w {path}")
        return os.read(fd, _MAX_BYTES).decode("utf-8", "replace")
    finally:
        os.close(fd)


def make_folders(folder: Path) -> None:
    """Create a directory for settings or keys, and its missing parents, for this user alone.

    Raises:
        OSError: a directory cannot be created.
    """
    for missing in reversed([folder, *folder.parents]):  # mkdir(parents=True) uses the umask for parents
        if not missing.exists():
            missing.mkdir(mode=0o700, exist_ok=True)


def _write(path: Path, text: str) -> None:
    make_folders(path.parent)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)
    temporary.replace(path)


def _parse(text: str, path: Path) -> dict[str, object]:
    settings = _parse_toml(text)
    if settings is None:
        raise SettingsError(str(path), "it is not valid TOML")
    return settings


def _parse_toml(text: str) -> dict[str, object] | None:
    import tomllib  # only needed if the file exists

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _text(value: object, where: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    raise SettingsError(where, f"{value!r} is not a string, an integer, a boolean, or a list of strings")


def environment(environ: Mapping[str, str], variables: Collection[str]) -> dict[str, str]:
    """Return the settings of the file, overridden by the environment's variables.

    Raises:
        SettingsError: the file is not TOML, has an unknown setting, is writable by other users, or does not exist
            although TRTCACHE_CONFIG names it.
    """
    path = settings_path(environ)
    if environ.get("TRTCACHE_CONFIG") and not path.exists():
        raise SettingsError("TRTCACHE_CONFIG", f"{path} does not exist")
    settings = read_settings(path, [variable for variable in variables if variable != "TRTCACHE_CONFIG"])
    return {**settings, **environ}
