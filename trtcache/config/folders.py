"""Where a user's own files are, and what a path that he writes means.

Nothing of his is ever looked for below the working directory: with no home, in a container for a user who is in no list
of them, say, ``~`` stays as it is and would be a folder there, of whoever made what is worked on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path, user_config_path

from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable


def cache_folder(name: str) -> Path:
    """Return the folder ``name`` for what can be made again: in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    try:
        found = user_cache_path(name, appauthor=False)
    except RuntimeError:  # platformdirs 4.14 knows no home; older ones return what begins with ~
        found = Path()
    return found if found.is_absolute() else Path("/.cache") / name


def config_folder(name: str) -> Path:
    """Return the folder ``name`` for settings: in ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    try:
        found = user_config_path(name, appauthor=False)
    except RuntimeError:
        found = Path()
    return found if found.is_absolute() else Path("/.config") / name


def absolute(path: str | os.PathLike[str], where: str) -> Path:
    """Return the path that a user wrote, from the root on.

    Raises:
        SettingsError: it is none; the message names ``where``.
    """
    try:
        found = Path(path).expanduser().absolute()
        is_path = b"\0" not in os.fsencode(found)
    except (OSError, RuntimeError, ValueError) as error:  # no working directory, no home, no such characters
        raise SettingsError(where, f"{str(path)!r} is no path here: {error}") from error
    if not is_path:
        raise SettingsError(where, f"{str(path)!r} is no path: it has a zero in it")
    return found


def absolutes(found: Iterable[str | os.PathLike[str]], where: str) -> tuple[Path, ...]:
    """Return directories, each made absolute; ``where`` is the setting that has them.

    Raises:
        SettingsError: it is one path, or not all are paths.
    """
    if isinstance(found, (str, os.PathLike)):
        raise SettingsError(where, f"expected a list of directories, got {found!r}")
    paths = tuple(found)
    if wrong := [one for one in paths if not isinstance(one, (str, os.PathLike))]:
        raise SettingsError(where, f"expected directories, got {wrong[0]!r}")
    return tuple(absolute(one, where) for one in paths)
