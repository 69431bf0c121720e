"""The definition of a percentile, which every command uses."""

from __future__ import annotations

import pytest

from trtcache.config.units import percentile


@pytest.mark.parametrize(
    ("count", "percent", "rank"),
    [
        *((1, 0, 1), (1, 50, 1), (1, 100, 1)),
        *((2, 50, 1), (2, 51, 2), (2, 99, 2)),
        *((4, 50, 2), (4, 75, 3), (4, 76, 4)),
        *((20, 95, 19), (100, 95, 95), (101, 99, 100), (20, 0, 1), (20, 100, 20)),
    ],
)
def test_it_is_the_nearest_rank(count: int, percent: int, rank: int) -> None:
    """As few values as possible that are at least the percentage of all."""
    assert percentile([float(number) for number in range(1, count + 1)], percent) == rank
