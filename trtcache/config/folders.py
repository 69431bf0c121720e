"""The user's cache and configuration directories, and paths typed by the user.

No path falls back to the working directory: without a home directory, as in a container for an unlisted user, ``~`` is
not expanded and would name a directory there, which another user may control.
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
    """Return the cache directory ``name``, in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    try:
        path = user_cache_path(name, appauthor=False)
    except RuntimeError:  # no home directory: platformdirs 4.14 raises, older versions return a path with ~
        path = Path()
    return path if path.is_absolute() else Path("/.cache") / name


def config_folder(name: str) -> Path:
    """Return the configuration directory ``name``, in ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    try:
        path = user_config_path(name, appauthor=False)
    except RuntimeError:
        path = Path()
    return path if path.is_absolute() else Path("/.config") / name


def absolute(path: str | os.PathLike[str], where: str) -> Path:
    """Expand ``~`` and return an absolute path.

    Raises:
        SettingsError: it is not a valid path; the message names ``where``.
    """
    try:
        expanded = Path(path).expanduser().absolute()
        is_path = b"\0" not in os.fsencode(expanded)
    except (OSError, RuntimeError, ValueError) as error:  # no working directory, no home, unencodable characters
        raise SettingsError(where, f"{str(path)!r} is not a valid path: {error}") from error
    if not is_path:
        raise SettingsError(where, f"{str(path)!r} is not a valid path: it contains a null byte")
    return expanded


def absolutes(found: Iterable[str | os.PathLike[str]], where: str) -> tuple[Path, ...]:
    """Return directories as absolute paths; ``where`` is the name of the setting.

    Raises:
        SettingsError: it is a single path, or an element is not a path.
    """
    if isinstance(found, (str, os.PathLike)):
        raise SettingsError(where, f"expected a list of directories, got {found!r}")
    paths = tuple(found)
    if wrong := [path for path in paths if not isinstance(path, (str, os.PathLike))]:
        raise SettingsError(where, f"expected directories, got {wrong[0]!r}")
    return tuple(absolute(path, where) for path in paths)
