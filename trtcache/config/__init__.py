"""Configuration: environment, settings file, units, signing keys, logs, and the garbage collector."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the garbage collector.

    Where torch is loaded a collection looks at all of its objects: that was half of the time of importing the modules
    behind ``trtcache.compile``, and a fifth of exporting and lowering BERT. Afterwards all objects are moved to the
    oldest generation, or the next allocation would scan all of them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()
