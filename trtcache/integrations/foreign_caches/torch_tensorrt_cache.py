"""torch_tensorrt's ``DiskEngineCache``, 2.8 to 2.14: a folder for each partition, with one pickle ``blob.bin``.

A folder's name consists of three digests: of the operators' names in order, of the input specs and of some settings.
The timing cache is by default a file in the same directory.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trtcache.integrations.foreign_caches.find import ENGINE, Find, inspect_engine, label, open_find
from trtcache.integrations.foreign_caches.pickled import engine_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOB: Final = "blob.bin"
TIMING: Final = "timing_cache.bin"

_MAYBE_BARE = "its weights may not be in it: torch_tensorrt stores engines for refit"


def finds(root: Path) -> Iterator[Find]:
    """Yield the content of a cache directory, by name.

    Raises:
        OSError: the directory cannot be read.
    """
    for name in sorted(os.listdir(root)):  # noqa: PTH208  # only names are needed
        path = root / name
        try:
            status = path.lstat()
        except FileNotFoundError:  # removed by its tool meanwhile
            continue
        if stat.S_ISDIR(status.st_mode):
            yield from _partition(path, name, status)
            continue
        if name == TIMING:
            beside = Find(label(name), path, "timing", why="measurements of kernels, for a builder")
        else:
            beside = Find(label(name), path, "other", why="it is not part of this layout")
        yield _stat(beside)


def _partition(path: Path, name: str, status: os.stat_result) -> Iterator[Find]:
    folder = Find(label(name), path, "folder")
    if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
        yield folder.rejected_as("unsafe", "other users may write to the folder; if none did, run: chmod go-w")
        return
    names = sorted(os.listdir(path))  # noqa: PTH208  # only names are needed
    if BLOB not in names:
        yield folder.rejected_as("orphan", f"it has no {BLOB}")
    for entry_name in names:
        if entry_name == BLOB:
            yield _engine(Find(label(f"{name}/{entry_name}"), path / entry_name, ENGINE))
        else:
            yield _stat(
                Find(label(f"{name}/{entry_name}"), path / entry_name, "other", why="it is not part of this layout")
            )


def _engine(find: Find) -> Find:
    find, file = open_find(find)
    if file is None:
        return find
    try:
        found = inspect_engine(find, file, engine_in(file))
    except ValueError as error:
        return find.rejected_as("damaged", str(error))
    finally:
        file.close()
    return replace(found, why=_MAYBE_BARE) if found.keyed else found


def _stat(find: Find) -> Find:
    sized, file = open_find(find)
    if file is not None:
        file.close()
    return sized
