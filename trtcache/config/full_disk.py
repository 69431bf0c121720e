"""Error messages for a full disk that name the file and a remedy."""

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
    """Add the file and a remedy to the error of a full disk; the error of a write to an open file names neither.

    Raises:
        OSError: the disk or the quota is full; other errors are not changed.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise OSError(error.errno, f"{os.strerror(error.errno)}; {remedy}", str(path)) from error
