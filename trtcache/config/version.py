"""Installed versions of this and other packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version
from importlib.util import find_spec


def installed_version() -> str:
    """Return the installed version, or ``0+source`` for a source tree that is not installed."""
    try:
        return _version("trtcache")
    except PackageNotFoundError:
        return "0+source"


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it. Namespace directories do not count."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None
