"""Entry points of passes from other distributions. Nothing of theirs is imported here."""

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
def installed_passes() -> tuple[EntryPoint, ...]:
    """Return the entry points of this environment, looked up once.

    There are almost never any, and parsing those of every distribution takes 3 ms of a hit of 60; so files are first
    searched for the group's name.
    """
    if not any(map(_mentions, sys.path)):
        return ()
    return tuple(entry_points(group=_GROUP))


def _mentions(folder: str) -> bool:
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208  # only names are needed
    except NotADirectoryError:
        return True  # an archive: importlib can read it
    except OSError:
        return False
    infos = (name for name in names if name.endswith((".dist-info", ".egg-info", ".egg")))
    return any(_mentioned_in(f"{folder or '.'}/{name}/entry_points.txt") for name in infos)


def _mentioned_in(path: str) -> bool:
    try:
        return _GROUP.encode() in file_bytes(path)
    except OSError:  # a directory can be opened, but not read
        return path.endswith(".egg/entry_points.txt")
