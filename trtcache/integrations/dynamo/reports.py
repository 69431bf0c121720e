"""What became of the graphs that ``torch.compile`` handed over in this process."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtcache.runtime import Report

_MOST = 1000


@dataclass(slots=True)
class GraphReport:
    """One graph of a model. Printing it gives a small table.

    Attributes:
        name: what the graph is called.
        engines: what was compiled for it: one report for each engine, in the order in which they were wanted.
        eager: why calls run in eager torch, each reason once; empty if none does.
        weight_sets: how many sets of weights the engines were given.
    """

    name: str
    engines: list[Report] = field(default_factory=list)
    eager: list[str] = field(default_factory=list)
    weight_sets: int = 0

    def __str__(self) -> str:
        engines, sets = _count(len(self.engines), "engine"), _count(self.weight_sets, "set")
        rows = [f"{self.name}: {engines}, {sets} of weights"]
        rows += [str(one) for one in self.engines]
        rows += [f"  eager: {why}" for why in self.eager]
        return "\n".join(rows)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


class Reports:
    """The reports of a process's graphs, the last thousand of them, and what was warned of."""

    def __init__(self) -> None:
        """Start with none."""
        self._reports: deque[GraphReport] = deque(maxlen=_MOST)
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def new(self, name: str) -> GraphReport:
        """Return the report of a new graph."""
        report = GraphReport(name)
        with self._lock:
            self._reports.append(report)
        return report

    def all(self) -> tuple[GraphReport, ...]:
        """Return every report, the oldest first."""
        with self._lock:
            return tuple(self._reports)

    def is_news(self, warning: str) -> bool:
        """Say whether this has not been warned of before."""
        with self._lock:
            known = warning in self._warned
            self._warned.add(warning)
            return not known

    def clear(self) -> None:
        """Forget reports and warnings."""
        with self._lock:
            self._reports.clear()
            self._warned.clear()
