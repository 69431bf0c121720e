"""Verifies a direct hit now and then when the process ends: what direct mode does not know of is found out."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.cache import Cache
    from trtcache.direct.mode import Examples

log = logging.getLogger(__name__)

KEPT_BYTES = 16 << 20
"""Examples as large as this at most are kept until the process ends."""


def is_sampled(one_in: int, draw: Callable[[int], bytes] = os.urandom) -> bool:
    """Say whether this hit is one to verify. The process's own random numbers stay as they are."""
    return one_in > 0 and int.from_bytes(draw(4), "big") % one_in == 0


def is_idle() -> bool:
    """Say whether a core is free."""
    return os.getloadavg()[0] < (os.cpu_count() or 1)


class Sample:
    """A hit that is verified when the process ends, if the model is still there and as it was."""

    def __init__(self, model: torch.nn.Module, examples: Examples, cache: Cache, name: str) -> None:
        """Keep the examples and how gradients are; the model is kept by its owner."""
        self._model, self._examples, self._cache, self._name = weakref.ref(model), examples, cache, name
        self._gradients, self._inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    @classmethod
    def take(cls, model: torch.nn.Module, examples: Examples, cache: Cache, name: str) -> None:
        """Have a hit verified at exit, unless its examples are large."""
        leaves = pytree.tree_leaves(examples[:2])
        if sum(one.nbytes for one in leaves if isinstance(one, torch.Tensor)) <= KEPT_BYTES:
            atexit.register(cls(model, examples, cache, name).verify)

    def verify(self, idle: Callable[[], bool] = is_idle) -> str:
        """Export the model, compare, and return what came of it: empty where nothing was compared."""
        model = self._model()
        if model is None or not idle():
            return ""
        around: Any = torch.inference_mode() if self._inference else nullcontext()
        try:
            with torch.set_grad_enabled(self._gradients), around:
                return self._verified(model)
        except Exception:  # the process ends, and has done its work
            log.debug("%s could not be verified", self._name, exc_info=True)
            return ""

    def _verified(self, model: torch.nn.Module) -> str:
        from trtcache.direct.mode import VERIFY, Attempt
        from trtcache.lowering.capture import export
        from trtcache.lowering.tracing_lock import ALONE

        attempt = Attempt(model, self._examples, self._cache, mode=VERIFY, name=self._name)
        if not attempt.find():
            return ""
        args, kwargs, dynamic_shapes = self._examples
        with ALONE:
            attempt.verify(export(model, tuple(args), kwargs or {}, dynamic_shapes))
        return attempt.outcome
