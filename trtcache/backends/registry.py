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
        backend_class = getattr(import_module(module), attribute)
        if name not in _OURS:
            require_contract(name, backend_class)
        backend: Backend = backend_class()
        why = why_unavailable(backend, device)
    except BackendUnavailableError:
        raise
    except ImportError as error:
        raise BackendUnavailableError(name, f"cannot be imported: {error}") from error
    except Exception as error:  # another distribution's code
        raise BackendUnavailableError(name, f"it fails with {type(error).__name__}: {error}") from error
    if why:
        raise BackendUnavailableError(name, why)
    return backend


def why_unavailable(backend: Backend, device: str) -> str | None:
    """Return why a backend cannot run on this device type here, or None."""
    if why := backend.unavailable(device):
        return why
    devices = sorted(backend.capabilities.devices)
    return None if device in devices else f"its engines run on {' and '.join(devices)}, not on {device}"


def require_contract(name: str, backend_class: type) -> None:
    """Check a backend of another distribution: it derives from ``Backend``, and nothing is missing or misnamed.

    A method with a wrong name would be ignored, and keys would lack what it returns.

    Raises:
        BackendUnavailableError: it does not, or something is; the message names each.
    """
    from difflib import get_close_matches  # 2 ms, needed for other distributions' backends only

    from trtcache.backends.protocol import Backend, Capabilities

    if not (isinstance(backend_class, type) and issubclass(backend_class, Backend)):
        raise BackendUnavailableError(name, f"{backend_class!r} is not a class that derives from trtcache's Backend")
    where = f"{backend_class.__module__}.{backend_class.__qualname__}"
    wrong = [f"method {method} is missing" for method in sorted(backend_class.__abstractmethods__)]
    for attribute, types in (("name", str), ("version", (int, str)), ("capabilities", Capabilities)):
        value = getattr(backend_class, attribute, None)
        if not isinstance(value, types) or value == "":
            wrong.append(f"attribute {attribute} is missing or has a wrong type")
    if getattr(backend_class, "name", name) != name:
        wrong.append(f"attribute name is {backend_class.name!r}, and its entry point is {name!r}")
    hooks = {hook for hook in vars(Backend) if not hook.startswith("_")} | set(Backend.__annotations__)
    own = {method for parent in backend_class.__mro__ for method in vars(parent)} - hooks - set(dir(object))
    for method in sorted(method for method in own if not method.startswith("_")):
        meant = next((hook for hook in hooks if hook.startswith(f"{method}_")), None)
        if meant := meant or next(iter(get_close_matches(method, hooks, 1, 0.8)), None):
            wrong.append(f"{method} has to be renamed: to {meant}, or to something less similar")
    if wrong:
        raise BackendUnavailableError(name, f"{where}: {'; '.join(wrong)}")
