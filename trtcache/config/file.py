"""``trtcache.toml``: the user's settings, over which the environment comes.

It lies in the user's own configuration folder and nowhere else: a file in a project or in a shared store could say whom
to trust in the name of whoever wrote it.
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
    """Return where the file is: where ``TRTCACHE_CONFIG`` says, or in the user's configuration folder.

    Raises:
        SettingsError: ``TRTCACHE_CONFIG`` is no path.
    """
    named = environ.get("TRTCACHE_CONFIG")
    return absolute(named, "TRTCACHE_CONFIG") if named else config_folder("trtcache") / NAME


def setting_name(variable: str) -> str:
    """Return how a variable's setting is called in the file: ``TRTCACHE_MAX_SIZE`` is ``max-size``."""
    return variable.removeprefix("TRTCACHE_").lower().replace("_", "-")


def read_settings(path: Path, variables: Collection[str]) -> dict[str, str]:
    """Return what the file says, as texts by variable; nothing if it is not there.

    Raises:
        SettingsError: it is no TOML, has an unknown setting, or other users can write to it.
    """
    text = _read(path)
    if text is None:
        return {}
    names = {setting_name(variable): variable for variable in variables}
    found = {}
    for name, value in _parse(text, path).items():
        if name not in names:
            raise SettingsError(f"{path}: {name}", did_you_mean(name, list(names)))
        found[names[name]] = _text(value, f"{path}: {name}")
    return found


def write_setting(path: Path, name: str, value: str | list[str]) -> None:
    """Change one setting of the file, and leave all else of it as it is, comments too.

    Raises:
        SettingsError: it is no TOML, or written so that it has to be changed by hand.
        OSError: it cannot be written.
    """
    text = _read(path) or ""
    before = _parse(text, path)
    shown = json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        shown = (
            "[" + "".join(f"\n  {json.dumps(one, ensure_ascii=False)}," for one in value) + ("\n]" if value else "]")
        )
    line = re.compile(rf"^{re.escape(name)}[ \t]*=[ \t]*(\[[^\]]*\]|\"[^\"\n]*\"|'[^'\n]*')[ \t]*", re.MULTILINE)
    replaced, count = line.subn(lambda _: f"{name} = {shown}", text, count=1)
    changed = replaced if count else f"{name} = {shown}\n{text}"
    if _parse_toml(changed) != {**before, name: value}:
        raise SettingsError(f"{path}: {name}", f"it is written in a way of its own; set it by hand: {name} = {shown}")
    _write(path, changed)


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(str(path), f"it cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise SettingsError(str(path), "it is not a file")
        alone_in_group = found.st_gid == found.st_uid == os.geteuid() != 0  # a user's private group, and umask 002
        others = 0o002 if alone_in_group else 0o022
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & others:
            raise SettingsError(str(path), f"other users can write to it; run: chmod go-w {path}")
        return os.read(fd, _MAX_BYTES).decode("utf-8", "replace")
    finally:
        os.close(fd)


def make_folders(folder: Path) -> None:
    """Make a folder for settings or keys, and those above it that are missing, for this user alone.

    Raises:
        OSError: one cannot be made.
    """
    for missing in reversed([folder, *folder.parents]):  # mkdir(parents=True) makes those above by the umask alone
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
    found = _parse_toml(text)
    if found is None:
        raise SettingsError(str(path), "it is no TOML")
    return found


def _parse_toml(text: str) -> dict[str, object] | None:
    import tomllib  # who has no such file does not pay for it

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _text(value: object, where: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return " ".join(value)
    raise SettingsError(where, f"{value!r} is neither text, a number, true, false, nor a list of texts")


def environment(environ: Mapping[str, str], variables: Collection[str]) -> dict[str, str]:
    """Return the variables of a configuration: the file's settings, and the environment's over them.

    Raises:
        SettingsError: the file is no TOML, has an unknown setting, other users can write to it, or it was named and is
            not there.
    """
    path = settings_path(environ)
    if environ.get("TRTCACHE_CONFIG") and not path.exists():
        raise SettingsError("TRTCACHE_CONFIG", f"there is no file {path}")
    said = read_settings(path, [variable for variable in variables if variable != "TRTCACHE_CONFIG"])
    return {**said, **environ}
