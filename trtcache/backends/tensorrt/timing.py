"""Timing caches: how long each kernel took on a GPU, so that the next build of another model need not measure again.

They are entries of kind ``timing_cache`` in the store, one for each version of TensorRT and kind of GPU. TensorRT-RTX
times nothing while it builds (its timing caches are empty since 1.2), so there are none for it.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING, Any

from trtcache.backends.tuning_cache import learned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tuning_cache import Learned
    from trtcache.target import Gpu

KIND = "timing_cache"

log = logging.getLogger(__name__)


class Timings:
    """The timing cache of one build, where builds of this flavour have one."""

    def __init__(self, config: Any, flavour: Flavour, gpu: Gpu | None, store: Learned | None) -> None:
        """Use the store's cache for ``gpu`` in a build; ``of`` asks what there is."""
        self._config, self._flavour, self._store = config, flavour, store
        self._parts = parts_of(flavour, gpu) if gpu is not None else {}
        self._recalled: bytes | None = None
        self._began_s = time.perf_counter()
        if store is not None and self._parts:
            self._recalled = store.recall(KIND, self._parts)
            self._attach(self._recalled or b"")

    @classmethod
    def of(cls, config: Any, flavour: Flavour, gpu: Gpu | None) -> Timings:
        """Return the timing cache of a build on ``gpu``, kept where the process keeps what it learns."""
        return cls(config, flavour, gpu, learned() if flavour.times_kernels else None)

    def _attach(self, content: bytes) -> None:
        """Give the builder a cache; one that it refuses, such as another driver's, is as good as none."""
        timings = self._config.create_timing_cache(content)
        if timings is not None and self._config.set_timing_cache(timings, False):
            return
        if content:
            log.info("the stored timing cache is not for this machine any more, and is begun anew")
            self._recalled = None
            self._attach(b"")

    def keep(self) -> None:
        """Keep what the build measured, together with what others measured meanwhile."""
        if self._store is None or not self._parts:
            return
        timings = self._config.get_timing_cache()
        if timings is not None:
            name, took_s = f"{self._flavour.title} {self._flavour.version}", time.perf_counter() - self._began_s
            combine = functools.partial(self._combined, timings)
            self._store.merge(KIND, self._parts, combine, name=name, saves_s=took_s)

    def _combined(self, timings: Any, stored: bytes | None) -> bytes | None:
        if stored is not None and stored != self._recalled:
            other = self._config.create_timing_cache(stored)
            if other is None or not timings.combine(other, False):
                log.info("the stored timing cache is not for this machine any more, and is replaced")
        content = bytes(timings.serialize())
        return None if content == stored else content


def parts_of(flavour: Flavour, gpu: Gpu) -> Mapping[str, object]:
    """Return what measured times are true for: one version of TensorRT, and one kind of GPU."""
    return {
        "format": 1,
        "flavour": flavour.name,
        "version": flavour.version,
        "cuda": flavour.cuda,
        "capability": gpu.capability,
        "gpu": gpu.document(),
    }
