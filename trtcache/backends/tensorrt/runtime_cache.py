"""Runtime caches: kernels that TensorRT-RTX compiles when a plan first runs on a GPU, stored for later processes.

A plan of TensorRT-RTX contains no finished kernels; they are compiled at the first call, which takes seconds. They are
entries of kind ``runtime_cache`` in the store, one for each version and kind of GPU. Not yet run on a GPU, like
``runner.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trtcache.backends.tensorrt.timing import tuning_key_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tuning_cache import TuningStore
    from trtcache.target import Gpu

KIND = "runtime_cache"

_COMPILE_S = 5.0  # not measured; it must be more than nothing for a prune

log = logging.getLogger(__name__)


class RuntimeCache:
    """The compiled kernels of one engine, if its flavour compiles any and there is a tuning store."""

    def __init__(self, engine: Any, flavour: Flavour, gpu: Gpu | None, store: TuningStore | None) -> None:
        """Load the stored kernels for a kind of GPU; without a store or GPU each context compiles its own."""
        self._engine, self._store, self._name = engine, store, f"{flavour.title} {flavour.version}"
        self._parts: Mapping[str, object] = {}
        self._kernels: Any = None
        self._settings: Any = None
        self._recalled: bytes | None = None
        self._has_run = False
        if store is not None and gpu is not None:
            self._parts = tuning_key_parts(flavour, gpu)
            self._recalled = store.recall(KIND, self._parts)
            self._attach()

    def _attach(self) -> None:
        execution = self._engine.create_runtime_config()
        kernels = execution.create_runtime_cache()
        if self._recalled is not None and not kernels.deserialize(self._recalled):
            log.info("the stored kernels do not fit this machine any more, and are compiled again")
            self._recalled = None
        if execution.set_runtime_cache(kernels):
            self._kernels, self._settings = kernels, execution

    def context(self) -> Any:
        """Return a new execution context, None if there is no memory for one."""
        engine = self._engine
        return (
            engine.create_execution_context()
            if self._settings is None
            else engine.create_execution_context(self._settings)
        )

    def has_run(self) -> None:
        """Store what the first call compiled; later ones mostly compile nothing."""
        if not self._has_run:
            self._has_run = True
            self.keep()

    def keep(self) -> None:
        """Store the compiled kernels, merged with those of other processes. Failures are only logged."""
        if self._store is None or self._kernels is None:
            return
        try:
            content = bytes(self._kernels.serialize())
            if content and content != self._recalled:
                self._store.merge(KIND, self._parts, self._combine, name=self._name, saves_s=_COMPILE_S)
        except Exception:  # runs at exit too, when a GPU may be gone
            log.debug("compiled kernels could not be stored", exc_info=True)

    def _combine(self, stored: bytes | None) -> bytes | None:
        """Return as many kernels as can be combined.

        No API call combines two caches. The documentation (1.7) does not say whether loading one adds to the current
        one, so the longest of the candidates is stored: nothing is lost but time.
        """
        content = bytes(self._kernels.serialize())
        if stored is not None and stored != self._recalled and self._kernels.deserialize(stored):
            content = max(content, bytes(self._kernels.serialize()), stored, key=len)
        self._recalled = content
        return None if content == stored else content
