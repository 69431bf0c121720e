"""Backends by name: built-in ones from a table, others from the entry point ``trtcache.backends``."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from trtcache.errors import BackendUnavailableError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import EntryPoint

    from trtcache.backends.protocol import Backend

log = logging.getLogger(__name__)

_OURS: Mapping[str, str] = {
    "aot_inductor": "trtcache.backends.aot_inductor.backend:AotInductor",
    "tensorrt": "trtcache.backends.tensorrt.backend:TensorRT",
    "tensorrt_rtx": "trtcache.backends.tensorrt.backend:TensorRTRtx",
}

_AUTOMATIC = ("aot_inductor",)
"""Backends tried by ``backend="auto"``, in order."""


@cache
def backend_table() -> Mapping[str, str]:
    """Return every backend's ``module:attribute`` by name."""
    from importlib.metadata import entry_points  # 20 ms, which a built-in backend does not need

    return _merge(_OURS, entry_points(group="trtcache.backends"))


def _merge(ours: Mapping[str, str], theirs: Iterable[EntryPoint]) -> dict[str, str]:
    table = dict(ours)
    owners = dict.fromkeys(ours, "trtcache")
    for point in theirs:
        owner = point.dist.name if point.dist else point.value
        if point.name in table:
            raise BackendUnavailableError(point.name, f"offered by both {owners[point.name]} and {owner}; remove one")
        table[point.name], owners[point.name] = point.value, owner
    return table


def find(name: str, device: str) -> Backend:
    """Return a backend by name, or for ``auto`` the first that can run on this device type.

    Raises:
        BackendUnavailableError: the name is unknown, or the backend cannot run here. A backend
            requested by name is never replaced by another.
    """
    if name != "auto":
        return _usable(name, device)
    reasons = []
    for candidate in _AUTOMATIC:
        try:
            backend = _usable(candidate, device)
        except BackendUnavailableError as error:
            reasons.append(str(error))
            continue
        log.info("backend auto: chose %s for %s", candidate, device)
        return backend
    raise BackendUnavailableError("auto", "; ".join(reasons))


def _usable(name: str, device: str) -> Backend:
    table = _OURS if name in _OURS else backend_table()  # reading entry points takes milliseconds
    if name not in table:
        raise BackendUnavailableError(name, did_you_mean(name, ["auto", *table]))
    module, _, attribute = table[name].partition(":")
    try:
        backend: Backend = getattr(import_module(module), attribute)()
    except ImportError as error:
        raise BackendUnavailableError(name, f"cannot be imported: {error}") from error
    if hasattr(backend, "frozen"):  # ignoring it would leave values of weights out of keys
        raise BackendUnavailableError(name, "its method frozen has to be renamed to frozen_slots")
    if why := backend.unavailable(device):
        raise BackendUnavailableError(name, why)
    return backend
