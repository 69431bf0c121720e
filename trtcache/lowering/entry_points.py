"""The passes of other distributions, as their entry points name them. Nothing of theirs is imported here."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from trtcache.digests import file_bytes

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GROUP = "trtcache.passes"


@cache
def installed() -> tuple[EntryPoint, ...]:
    """Return the entry points of this environment, looked up once.

    Nearly always there are none, and to parse every distribution's to learn that takes 3 ms of a hit of 60; so files
    are first searched for the group's name.
    """
    if not any(map(_mentions, sys.path)):
        return ()
    return tuple(entry_points(group=_GROUP))


def _mentions(folder: str) -> bool:
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208  # names alone are wanted
    except NotADirectoryError:
        return True  # an archive: importlib can look into it
    except OSError:
        return False
    infos = (name for name in names if name.endswith((".dist-info", ".egg-info", ".egg")))
    return any(_mentioned_in(f"{folder or '.'}/{name}/entry_points.txt") for name in infos)


def _mentioned_in(path: str) -> bool:
    try:
        return _GROUP.encode() in file_bytes(path)
    except OSError:  # one that is a directory can be opened, and not read
        return path.endswith(".egg/entry_points.txt")
