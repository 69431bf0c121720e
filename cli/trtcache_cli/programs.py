"""Exported programs from files, for the commands that lower them."""

from __future__ import annotations

import logging
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from trtcache import api
from trtcache.errors import CanonicalizationError, ExportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trtcache.keys.stored import StoredGraph
    from trtcache.lowering import LoweredProgram
    from trtcache.values import CacheKey

_logger = logging.getLogger("trtcache_cli")


def opened(path: Path) -> torch.export.ExportedProgram:
    """Return the program in a file that ``torch.export.save`` wrote.

    Raises:
        ExportError: there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise ExportError(str(path), "there is no such file")
    if not zipfile.is_zipfile(path):
        raise ExportError(str(path), "it is not what torch.export.save writes, which is a zip archive")
    try:
        with _quiet():
            return torch.export.load(path)
    except Exception as error:
        raise ExportError(str(path), "torch.export.load does not read it; TRTCACHE_LOG=cli shows why") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the traceback that torch logs for a file it cannot read to those who ask for it."""
    theirs = logging.getLogger("torch.export")
    level = theirs.level
    if not _logger.isEnabledFor(logging.DEBUG):
        theirs.setLevel(logging.ERROR)
    try:
        yield
    finally:
        theirs.setLevel(level)


def lowered(path: Path, backend: str) -> LoweredProgram:
    """Return the lowered program in a file; its ``runs`` have what each pass changed.

    Raises:
        ExportError: the file holds no program that can be lowered.
        PassError: a pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
    """
    return api.lower(opened(path), backend=backend, name=path.stem, trace=True)


def asked(path: Path, backend: str, target: str | None) -> tuple[CacheKey | None, StoredGraph | None, str]:
    """Return the key that ``compile`` would ask for, the graph, and if there can be no key why.

    Raises:
        ExportError: the file holds no program that can be lowered.
        PassError: a pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: the target is unknown.
    """
    try:
        key, graph = api.described(opened(path), backend=backend, target=target, name=path.stem)
    except CanonicalizationError as error:
        return None, None, str(error)
    return key, graph, ""
