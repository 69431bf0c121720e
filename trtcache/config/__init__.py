"""Configuration: environment, settings file, units, signing keys, logs, and the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY_OBJECTS = 20_000
"""Fewer new objects are scanned in a millisecond."""


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the garbage collector.

    Where torch is loaded a collection looks at all of its objects: that was half of the time of importing the modules
    behind ``trtcache.compile``, and a fifth of exporting and lowering BERT. Afterwards all objects are moved to the
    oldest generation if they are many, or the next allocation would scan all of them; but not if the process has frozen
    objects, which would be no longer frozen. Counting those takes 0.1 s in a process that has frozen a million.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled and gc.get_count()[0] > _MANY_OBJECTS and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()
