"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version


def installed_version() -> str:
    """Return the installed version, or ``0+source`` for a source tree that is not installed."""
    try:
        return _version("trtcache")
    except PackageNotFoundError:
        return "0+source"
