"""Timing caches and runtime caches in the store, one for each version of TensorRT and kind of GPU.

A timing cache has measured kernel times, so that later builds need not measure again. TensorRT-RTX does not time
kernels while it builds (its timing caches are empty since 1.2), so it has none. A runtime cache has the kernels that
TensorRT-RTX compiles at the first call of a plan, which takes seconds. Runtime caches have not run on a GPU yet.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trtcache.backends.protocol import TuningStore, current_tuning_store

if TYPE_CHECKING:
    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.target import Gpu

TIMING_CACHE, RUNTIME_CACHE = "timing_cache", "runtime_cache"
"""Kinds of the entries."""

log = logging.getLogger(__name__)

_COMPILE_S = 5.0  # an estimate: pruning ranks entries by the time that they save, and 0 would be removed first


class TimingCache:
    """The timing cache of one build, if builds of its flavour have one."""

    def __init__(self, config: Any, flavour: Flavour, gpu: Gpu | None, store: TuningStore | None) -> None:
        """Use the store's cache for ``gpu`` in a build."""
        self._config, self._flavour, self._store = config, flavour, store
        self._parts = tuning_key_parts(flavour, gpu) if gpu is not None else {}
        self._last_stored: bytes | None = None
        self._began_s = time.perf_counter()
        if store is not None and self._parts:
            self._last_stored = store.recall(TIMING_CACHE, self._parts)
            self._attach(self._last_stored or b"")

    @classmethod
    def of(cls, config: Any, flavour: Flavour, gpu: Gpu | None) -> TimingCache:
        """Return the timing cache of a build on ``gpu``, in the current tuning store."""
        return cls(config, flavour, gpu, current_tuning_store() if flavour.times_kernels else None)

    def _attach(self, content: bytes) -> None:
        """Pass the builder a cache; if it rejects it, for example after a driver update, an empty one."""
        timings = self._config.create_timing_cache(content)
        if timings is not None and self._config.set_timing_cache(timings, False):
            return
        if content:
            log.info("the stored timing cache does not fit this machine any more, and a new one is started")
            self._last_stored = None
            self._attach(b"")

    def keep(self) -> None:
        """Store the measured times, merged with those of other processes."""
        if self._store is None or not self._parts:
            return
        timings = self._config.get_timing_cache()
        if timings is not None:
            name, took_s = f"{self._flavour.title} {self._flavour.version}", time.perf_counter() - self._began_s
            combine = functools.partial(self._combine, timings)
            self._store.merge(TIMING_CACHE, self._parts, combine, name=name, saves_s=took_s)

    def _combine(self, timings: Any, stored: bytes | None) -> bytes | None:
        if stored is not None and stored != self._last_stored:
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


class RuntimeCache:
    """The compiled kernels of one engine, if its flavour compiles any and there is a tuning store."""

    def __init__(self, engine: Any, flavour: Flavour, gpu: Gpu | None, store: TuningStore | None) -> None:
        """Load the stored kernels for a kind of GPU; without a store or GPU each context compiles its own."""
        self._engine, self._store, self._name = engine, store, f"{flavour.title} {flavour.version}"
        self._parts: Mapping[str, object] = {}
        self._kernels: Any = None
        self._runtime_config: Any = None
        self._last_stored: bytes | None = None  # what this process has loaded or stored last
        self._has_run = False
        if store is not None and gpu is not None:
            self._parts = tuning_key_parts(flavour, gpu)
            self._last_stored = store.recall(RUNTIME_CACHE, self._parts)
            self._attach()

    def _attach(self) -> None:
        runtime_config = self._engine.create_runtime_config()
        kernels = runtime_config.create_runtime_cache()
        if self._last_stored is not None and not kernels.deserialize(self._last_stored):
            log.info("the stored kernels do not fit this machine any more, so they are compiled again")
            self._last_stored = None
        if runtime_config.set_runtime_cache(kernels):
            self._kernels, self._runtime_config = kernels, runtime_config

    def context(self) -> Any:
        """Return a new execution context, None if there is no memory for one."""
        engine = self._engine
        return (
            engine.create_execution_context()
            if self._runtime_config is None
            else engine.create_execution_context(self._runtime_config)
        )

    def has_run(self) -> None:
        """Store what the first call compiled; what later calls compile is stored when the engine is deleted."""
        if not self._has_run:
            self._has_run = True
            self.keep()

    def keep(self) -> None:
        """Store the compiled kernels, merged with those of other processes. Failures are only logged."""
        if self._store is None or self._kernels is None:
            return
        try:
            content = bytes(self._kernels.serialize())
            if content and content != self._last_stored:
                self._store.merge(RUNTIME_CACHE, self._parts, self._combine, name=self._name, saves_s=_COMPILE_S)
        except Exception:  # runs at exit too, when a GPU may be gone
            log.debug("compiled kernels could not be stored", exc_info=True)

    def _combine(self, stored: bytes | None) -> bytes | None:
        """Return the largest of this process's cache, the stored one, and both loaded together; None if it is stored.

        No API call combines two caches. The documentation (1.7) does not say whether loading one adds to the current
        one or replaces it: so a later call compares with the stored one again.
        """
        content = bytes(self._kernels.serialize())
        if stored is not None and self._kernels.deserialize(stored):
            content = max(content, bytes(self._kernels.serialize()), stored, key=len)
        self._last_stored = content
        return None if content == stored else content
