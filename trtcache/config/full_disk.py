"""A disk that is full, told such that somebody can make room on it."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def room_for(path: Path, remedy: str) -> Iterator[None]:
    """Name the file and the remedy in an error of a full disk: that of a write to an open file names nothing.

    Raises:
        OSError: the disk or the quota is full; other errors pass as they are.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise OSError(error.errno, f"{os.strerror(error.errno)}; {remedy}", str(path)) from error
