"""The choice of a backend, and the check of other distributions' backends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trtcache.config import backend_names
from trtcache.errors import BackendUnavailableError

if TYPE_CHECKING:
    from trtcache.backends.protocol import Backend

log = logging.getLogger(__name__)

_AUTOMATIC = ("aot_inductor",)
"""Backends tried by ``backend="auto"``, in order."""


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
    backend_class = backend_names.load_backend_class(name)
    try:
        if name not in backend_names.BUILT_IN:
            require_contract(name, backend_class)
        backend: Backend = backend_class()
        why = why_unavailable(backend, device)
    except BackendUnavailableError:
        raise
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
    from trtcache.config.backend_settings import BackendSettings

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
    own_settings = getattr(backend_class, "settings_class", None)
    if own_settings is not None and not (isinstance(own_settings, type) and issubclass(own_settings, BackendSettings)):
        wrong.append("attribute settings_class is not a class that derives from BackendSettings")
    elif own_settings is not None and getattr(own_settings, "section", "") != name:
        wrong.append(f"attribute section of {own_settings.__name__} has to be {name!r}")
    hooks = {hook for hook in vars(Backend) if not hook.startswith("_")} | set(Backend.__annotations__)
    own = {method for parent in backend_class.__mro__ for method in vars(parent)} - hooks - set(dir(object))
    for method in sorted(method for method in own if not method.startswith("_")):
        meant = next((hook for hook in hooks if hook.startswith(f"{method}_")), None)
        if meant := meant or next(iter(get_close_matches(method, hooks, 1, 0.8)), None):
            wrong.append(f"{method} has to be renamed: to {meant}, or to something less similar")
    if wrong:
        raise BackendUnavailableError(name, f"{where}: {'; '.join(wrong)}")
