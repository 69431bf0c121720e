"""Source files: whether the file of a module is the one that it was."""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.config.stat_fingerprint import FileState
from trtcache.digests import Digest
from trtcache.direct.attributes import UnstableError
from trtcache.direct.manifest import OfFile
from trtcache.store.root import is_local

if TYPE_CHECKING:
    from collections.abc import Callable


def file_of(module: str, clock_ns: Callable[[], int] = time.time_ns) -> OfFile:
    """Return what the file of a module is now.

    Raises:
        UnstableError: the module has no file that can be read.
    """
    path = _path(module)
    if path is None:
        raise UnstableError("it has no file").below(f"module {module}")
    opened_ns = clock_ns()
    try:
        with Path(path).open("rb") as file:
            state = FileState.of(file.fileno())
            digest = Digest.of(file.read())
            settled = state.settled(opened_ns) and FileState.of(file.fileno()) == state
    except OSError as error:
        raise UnstableError(f"its file cannot be read: {error.strerror}").below(f"module {module}") from None
    seen = tuple(state.document()) if settled and _is_local(state.device, os.path.dirname(path)) else None  # noqa: PTH120
    return OfFile(digest.hex, digest.size_bytes, seen)


def changed_file(module: str, was: OfFile) -> str | None:
    """Say how the file of a module differs from what it was; None if it does not."""
    path = _path(module)
    if path is None:
        return f"module {module} is not loaded" if module not in sys.modules else f"module {module} has no file"
    label = f"file {os.path.basename(path)}"  # noqa: PTH119  # this is done for each of thirty files of each hit
    try:
        found = os.stat(path)  # noqa: PTH116
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if state == was.seen:
            return None
        if found.st_size == was.size_bytes and Digest.of_file(path).hex == was.digest:
            return None
    except OSError as error:
        return f"{label} cannot be read: {error.strerror}"
    return f"{label} changed"


def _path(module: str) -> str | None:
    path = getattr(sys.modules.get(module), "__file__", None)
    return path if isinstance(path, str) else None


@functools.lru_cache(maxsize=64)
def _is_local(device: int, folder: str) -> bool:  # noqa: ARG001  # of one device all folders are alike
    return is_local(Path(folder))
