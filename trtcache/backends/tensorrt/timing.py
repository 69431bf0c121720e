"""Timing caches: measured kernel times on a GPU, so that later builds need not measure again.

They are entries of kind ``timing_cache`` in the store, one for each version of TensorRT and kind of GPU. TensorRT-RTX
does not time kernels while it builds (its timing caches are empty since 1.2), so it has none.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING, Any

from trtcache.backends.tuning_cache import current_tuning_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tuning_cache import TuningStore
    from trtcache.target import Gpu

KIND = "timing_cache"

log = logging.getLogger(__name__)


class Timings:
    """The timing cache of one build, if builds of its flavour have one."""

    def __init__(self, config: Any, flavour: Flavour, gpu: Gpu | None, store: TuningStore | None) -> None:
        """Use the store's cache for ``gpu`` in a build."""
        self._config, self._flavour, self._store = config, flavour, store
        self._parts = tuning_key_parts(flavour, gpu) if gpu is not None else {}
        self._recalled: bytes | None = None
        self._began_s = time.perf_counter()
        if store is not None and self._parts:
            self._recalled = store.recall(KIND, self._parts)
            self._attach(self._recalled or b"")

    @classmethod
    def of(cls, config: Any, flavour: Flavour, gpu: Gpu | None) -> Timings:
        """Return the timing cache of a build on ``gpu``, in the current tuning store."""
        return cls(config, flavour, gpu, current_tuning_store() if flavour.times_kernels else None)

    def _attach(self, content: bytes) -> None:
        """Pass the builder a cache; if it rejects it, for example after a driver update, an empty one."""
        timings = self._config.create_timing_cache(content)
        if timings is not None and self._config.set_timing_cache(timings, False):
            return
        if content:
            log.info("the stored timing cache does not fit this machine any more, and is started again")
            self._recalled = None
            self._attach(b"")

    def keep(self) -> None:
        """Store the measured times, merged with those of other processes."""
        if self._store is None or not self._parts:
            return
        timings = self._config.get_timing_cache()
        if timings is not None:
            name, took_s = f"{self._flavour.title} {self._flavour.version}", time.perf_counter() - self._began_s
            combine = functools.partial(self._combine, timings)
            self._store.merge(KIND, self._parts, combine, name=name, saves_s=took_s)

    def _combine(self, timings: Any, stored: bytes | None) -> bytes | None:
        if stored is not None and stored != self._recalled:
            other = self._config.create_timing_cache(stored)
            if other is None or not timings.combine(other, False):
                log.info("the stored timing cache does not fit this machine any more, and is replaced")
        content = bytes(timings.serialize())
        return None if content == stored else content


def tuning_key_parts(flavour: Flavour, gpu: Gpu) -> Mapping[str, object]:
    """Return what measured times depend on: one version of TensorRT, and one kind of GPU."""
    return {
        "format": 1,
        "flavour": flavour.name,
        "version": flavour.version,
        "cuda": flavour.cuda,
        "capability": gpu.capability,
        "gpu": gpu.document(),
    }
