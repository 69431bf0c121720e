"""Logging to standard error by area: ``TRTCACHE_LOG=lowering,keys``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trtcache.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "TRTCACHE_LOG"

AREAS: Mapping[str, tuple[str, ...]] = {
    "lowering": ("trtcache.lowering",),
    "keys": (
        "trtcache.keys",
        "trtcache.api",
        "trtcache.compiler",
        "trtcache.frontends.pt2",
    ),
    "store": ("trtcache.store", "trtcache.cache"),
    "tensorrt": ("trtcache.tensorrt",),
    "cli": ("trtcache_cli",),
    "torch_compile": ("trtcache.integrations.torch_compile", "trtcache.integrations.dynamo"),
}
"""Area -> its loggers."""


def start(environ: Mapping[str, str]) -> None:
    """Set the loggers of the areas in ``TRTCACHE_LOG`` to DEBUG; others are unchanged.

    They print to standard error if no handler is configured, so a program with its own handlers keeps those.

    Raises:
        SettingsError: the variable names an unknown area.
    """
    for area in filter(None, (part.strip() for part in environ.get(VARIABLE, "").split(","))):
        if area not in AREAS:
            raise SettingsError(VARIABLE, f"{area!r}: {did_you_mean(area, list(AREAS))}")
        for name in AREAS[area]:
            logger = logging.getLogger(name)
            logger.setLevel(logging.DEBUG)
            if not logger.hasHandlers():
                handler = logging.StreamHandler()
                handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
                logger.addHandler(handler)
