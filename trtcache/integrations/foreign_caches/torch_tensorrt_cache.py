"""torch_tensorrt's ``DiskEngineCache``, 2.8 to 2.14: a folder for each partition, with one pickle ``blob.bin`` in it.

A folder's name is made of three digests: of the operators' names in order, of the input specs and of some settings. The
timing cache is by default a file beside the folders.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trtcache.integrations.foreign_caches.find import ENGINE, Find, engine_of, label, looked_at
from trtcache.integrations.foreign_caches.pickled import engine_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOB: Final = "blob.bin"
TIMING: Final = "timing_cache.bin"

_MAYBE_BARE = "its weights may not be in it: torch_tensorrt keeps engines to refit them"


def finds(root: Path) -> Iterator[Find]:
    """Yield what the cache in a directory holds, by name.

    Raises:
        OSError: the directory cannot be read.
    """
    for name in sorted(os.listdir(root)):  # noqa: PTH208  # names alone are wanted
        path = root / name
        try:
            status = path.lstat()
        except FileNotFoundError:  # its tool is running, and has removed it
            continue
        if stat.S_ISDIR(status.st_mode):
            yield from _partition(path, name, status)
            continue
        if name == TIMING:
            beside = Find(label(name), path, "timing", why="measurements of kernels, for a builder")
        else:
            beside = Find(label(name), path, "other", why="it is not of this layout")
        yield _sized(beside)


def _partition(path: Path, name: str, status: os.stat_result) -> Iterator[Find]:
    folder = Find(label(name), path, "folder")
    if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
        yield folder.refused("unsafe", "other users may write to the folder; if none did, run: chmod go-w")
        return
    names = sorted(os.listdir(path))  # noqa: PTH208  # names alone are wanted
    if BLOB not in names:
        yield folder.refused("orphan", f"it has no {BLOB}")
    for one in names:
        if one == BLOB:
            yield _engine(Find(label(f"{name}/{one}"), path / one, ENGINE))
        else:
            yield _sized(Find(label(f"{name}/{one}"), path / one, "other", why="it is not of this layout"))


def _engine(find: Find) -> Find:
    find, file = looked_at(find)
    if file is None:
        return find
    try:
        found = engine_of(find, file, engine_in(file))
    except ValueError as error:
        return find.refused("damaged", str(error))
    finally:
        file.close()
    return replace(found, why=_MAYBE_BARE) if found.keyed else found


def _sized(find: Find) -> Find:
    sized, file = looked_at(find)
    if file is not None:
        file.close()
    return sized
