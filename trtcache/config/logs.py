"""``TRTCACHE_LOG=lowering,keys``: what trtcache tells on standard error while it works, by area."""

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
"""Area -> the loggers that speak of it."""


def start(environ: Mapping[str, str]) -> None:
    """Make the loggers of the areas that ``TRTCACHE_LOG`` names say everything; the others stay as they are.

    They print on standard error where nobody else handles them, so a program with its own handlers keeps those.

    Raises:
        SettingsError: the variable names an area that there is not.
    """
    for area in filter(None, (one.strip() for one in environ.get(VARIABLE, "").split(","))):
        if area not in AREAS:
            raise SettingsError(VARIABLE, f"{area!r}: {did_you_mean(area, list(AREAS))}")
        for name in AREAS[area]:
            logger = logging.getLogger(name)
            logger.setLevel(logging.DEBUG)
            if not logger.hasHandlers():
                handler = logging.StreamHandler()
                handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
                logger.addHandler(handler)
