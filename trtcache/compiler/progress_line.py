"""One line on a terminal while an engine is built: what, how long so far, and how long it took the last time."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trtcache.errors import TrtcacheError
from trtcache.progress import watcher
from trtcache.store.catalog import load_records

if TYPE_CHECKING:
    from typing import TextIO

    from trtcache.cache import Cache

_EVERY_S = 0.5
_CLEAR = "\r\x1b[K"
_ONE_LINE = threading.Lock()
"""Held while a line is shown: engines that are built at the same time share the line of the first."""


@contextmanager
def show_progress_line(cache: Cache, *, kind: str, name: str, device: str) -> Iterator[None]:
    """Show a line on standard error while the block runs, and remove it at the end.

    Nothing is shown if standard error is not a terminal, or a dumb one, in CI, with ``TRTCACHE_QUIET=1``, or if a
    progress callback is installed, whose owner shows the progress.
    """
    stream = sys.stderr
    is_terminal = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    is_shown = is_terminal and not (cache.config.quiet or os.environ.get("CI") or watcher())
    if not is_shown or not _ONE_LINE.acquire(blocking=False):
        yield
        return
    ended = threading.Event()
    text = f"building {''.join(char if char.isprintable() else '?' for char in name)} for {device}, "
    line = threading.Thread(target=_show, args=(stream, text, last_build_s(cache, kind, name), ended), daemon=True)
    line.start()
    try:
        yield
    finally:
        ended.set()
        line.join()
        _ONE_LINE.release()


def last_build_s(cache: Cache, kind: str, name: str) -> float | None:
    """Return how long the last build of this kind and name took, or None if none is stored."""
    if not cache.layers.disks:
        return None
    try:
        records = [record for store in cache.layers.disks for record in load_records(store)]
    except (TrtcacheError, OSError):  # only an estimate
        return None
    same = [record for record in records if (record.kind, record.name) == (kind, name) and record.build_s > 0]
    return max(same, key=lambda record: record.created_ns).build_s if same else None


def _show(stream: TextIO, text: str, expected_s: float | None, ended: threading.Event) -> None:
    start_s = time.monotonic()
    about = "" if expected_s is None else f" of about {expected_s:.0f} s"
    while True:
        line = f"{text}{time.monotonic() - start_s:.0f} s{about}; cached from then on"
        stream.write(f"{_CLEAR}{line[: shutil.get_terminal_size().columns - 1]}")
        stream.flush()
        if ended.wait(_EVERY_S):
            break
    stream.write(_CLEAR)
    stream.flush()
