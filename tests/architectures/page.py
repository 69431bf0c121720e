"""The page ``docs/evidence/models.md``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCUMENT = Path(__file__).parents[2] / "docs" / "evidence" / "models.md"


def markdown(names: Sequence[str], rows: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    return str(len(rows))
