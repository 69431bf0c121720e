"""Runtime caches: what TensorRT-RTX compiles on a GPU when a plan first runs there, kept for the next process.

A plan of TensorRT-RTX has no finished kernels in it; those are made at the first call, which takes seconds. They are
entries of kind ``runtime_cache`` in the store, one for each version and kind of GPU. Not yet run on a GPU, as
``runner.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trtcache.backends.tensorrt.timing import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tuning_cache import Learned
    from trtcache.target import Gpu

KIND = "runtime_cache"

_COMPILING_S = 5.0  # nobody has measured it; a prune is to know that it is not nothing

log = logging.getLogger(__name__)


class RuntimeCache:
    """The compiled kernels of one engine, where its flavour compiles any and the process keeps what it learns."""

    def __init__(self, engine: Any, flavour: Flavour, gpu: Gpu | None, store: Learned | None) -> None:
        """Begin with what the store has for a kind of GPU; without either, every context compiles its own."""
        self._engine, self._store, self._name = engine, store, f"{flavour.title} {flavour.version}"
        self._parts: Mapping[str, object] = {}
        self._kernels: Any = None
        self._settings: Any = None
        self._recalled: bytes | None = None
        self._has_run = False
        if store is not None and gpu is not None:
            self._parts = parts_of(flavour, gpu)
            self._recalled = store.recall(KIND, self._parts)
            self._attach()

    def _attach(self) -> None:
        execution = self._engine.create_runtime_config()
        kernels = execution.create_runtime_cache()
        if self._recalled is not None and not kernels.deserialize(self._recalled):
            log.info("the stored kernels are not for this machine any more, and are compiled anew")
            self._recalled = None
        if execution.set_runtime_cache(kernels):
            self._kernels, self._settings = kernels, execution

    def context(self) -> Any:
        """Return a new context of the engine, None where there is no memory for one."""
        engine = self._engine
        return (
            engine.create_execution_context()
            if self._settings is None
            else engine.create_execution_context(self._settings)
        )

    def has_run(self) -> None:
        """Keep what the first call compiled; later ones, mostly, compile nothing."""
        if not self._has_run:
            self._has_run = True
            self.keep()

    def keep(self) -> None:
        """Keep what was compiled, together with what others compiled meanwhile. Trouble is no reason to fail."""
        if self._store is None or self._kernels is None:
            return
        try:
            content = bytes(self._kernels.serialize())
            if content and content != self._recalled:
                self._store.merge(KIND, self._parts, self._combined, name=self._name, saves_s=_COMPILING_S)
        except Exception:  # it runs at exit too, when a GPU may be gone
            log.debug("compiled kernels could not be kept", exc_info=True)

    def _combined(self, stored: bytes | None) -> bytes | None:
        """Return the most kernels that can be had together.

        There is no call that combines two caches. Whether loading one adds to what is there its documentation does
        not say (1.7), so the longest of what is at hand is kept: nothing is lost but time.
        """
        content = bytes(self._kernels.serialize())
        if stored is not None and stored != self._recalled and self._kernels.deserialize(stored):
            content = max(content, bytes(self._kernels.serialize()), stored, key=len)
        self._recalled = content
        return None if content == stored else content
