"""How much a subject measures: how many rounds, and until when it begins another."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Effort:
    """Rounds at the most, and the time on a clock after which none ends if the next takes as long as the last."""

    rounds: int
    ends_s: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def of(cls, rounds: int, *, budget_s: float, clock: Callable[[], float] = time.monotonic) -> Effort:
        """Return the effort that begins now."""
        return cls(rounds, clock() + budget_s, clock)

    def has(self, took_s: float) -> bool:
        """Say whether there is time for what took so long."""
        return self.clock() + took_s <= self.ends_s

    def turns(self, most: int | None = None) -> Iterator[int]:
        """Yield the number of each round, from 0: one at least, and at most so many."""
        took_s = 0.0
        for turn in range(self.rounds if most is None else min(self.rounds, most)):
            began_s = self.clock()
            if turn and not self.has(took_s):
                return
            yield turn
            took_s = self.clock() - began_s
