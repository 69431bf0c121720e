"""How much a test tries: a fixed sample in ``make test``, all of it in ``make torture``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TORTURE = os.environ.get("TRTCACHE_TORTURE") == "1"
SOON_S = 20.0
"""What ends at once ends within this time on the busiest machine; what hangs or waits to its end does not."""


def tries(quick: int, torture: int) -> int:
    """Return how often a test tries something: ``quick`` times, or ``torture`` times where TRTCACHE_TORTURE=1."""
    return torture if TORTURE else quick


def samples(path: Path) -> list[str]:
    """Return the calls of ``tries`` in a file of tests, as written."""
    return re.findall(r"\btries\([^()]+\)", path.read_text(encoding="utf-8"))
