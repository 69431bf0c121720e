"""Which parts of a program come after which, as far as it matters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Precedence:
    """The order of parts that run side by side where they can.

    Attributes:
        before: for each part, how many others it comes directly after.
        after: for each part, those that come directly after it.
        at_once: how many parts can be under way at once at most; 1 for a chain, and exact for that.
    """

    before: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    at_once: int

    @classmethod
    def of(cls, needs: Sequence[Iterable[int]], turns: Iterable[Sequence[int]]) -> Precedence:
        """Return the order of parts.

        Args:
            needs: for each part those before it whose values it takes.
            turns: parts, in order, of which each comes after the one before it all the same.
        """
        direct = [set(one) for one in needs]
        for turn in turns:
            for before, after in pairwise(turn):
                direct[after].add(before)
        later: list[list[int]] = [[] for _ in direct]
        depths: list[int] = []
        for number, one in enumerate(direct):
            depths.append(1 + max((depths[other] for other in one), default=0))
            for other in one:
                later[other].append(number)
        longest = max(depths, default=0)
        return cls(tuple(map(len, direct)), tuple(map(tuple, later)), len(direct) - longest + 1)

    def ways_s(self, took_s: Mapping[int, float]) -> list[float]:
        """Return for each part how long the longest way from its beginning to the end is, by what parts took."""
        ways = [0.0] * len(self.after)
        for number in reversed(range(len(ways))):
            ways[number] = took_s.get(number, 0.0) + max((ways[other] for other in self.after[number]), default=0.0)
        return ways
