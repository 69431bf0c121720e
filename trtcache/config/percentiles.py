"""The one definition of a percentile of measured times."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the nearest rank: the smallest value that at least ``percent`` in a hundred of the values do not exceed.

    It is one of the values, and never between two of them. The median of two values is the smaller one.

    Args:
        values: the values, sorted, at least one.
        percent: from 0, the minimum, to 100, the maximum.
    """
    rank = (percent * len(values) + 99) // 100  # rounded up, in whole numbers: 0.95 * 20 is more than 19
    return values[max(0, rank - 1)]
