"""Latency and throughput of a compiled module over numbers of intra-op threads and of runners.

A *cell* is one pair of numbers. Cells take turns, so that other work on the machine falls on all of them alike.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.config import threads as thread_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trtcache.runtime.module import CompiledModule

ROUNDS = 3
"""Turns that a cell has."""

_WARM_SHARE = 0.2
"""How much of a turn is run before it, and is not counted."""

_LEAST_CALLS = 2
"""However long a call takes."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a cell is measured: for so many seconds, or for so many calls where ``calls`` says how many."""

    seconds: float = 3.0
    calls: int | None = None

    def of_a_turn(self) -> Effort:
        """Return what one of a cell's turns is."""
        return Effort(self.seconds / ROUNDS, None if self.calls is None else -(-self.calls // ROUNDS))

    @property
    def warm_up(self) -> Effort:
        """What comes before it uncounted."""
        return Effort(self.seconds * _WARM_SHARE, None if self.calls is None else math.ceil(self.calls * _WARM_SHARE))


@dataclass(slots=True)
class Cell:
    """What was measured with so many threads and runners.

    Attributes:
        threads: intra-op threads of each call.
        runners: calls that are under way at once; one is a plain loop of calls.
        skipped: why it was not measured, or empty.
        latencies_s: seconds of each call, from handing it over to having its outputs.
        elapsed_s: seconds that all of them took.
    """

    threads: int
    runners: int
    skipped: str = ""
    latencies_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0

    @property
    def median_s(self) -> float:
        """The latency that half of the calls had at most."""
        return statistics.median(self.latencies_s)

    @property
    def p95_s(self) -> float:
        """The latency that 95 of 100 calls had at most."""
        return sorted(self.latencies_s)[-(-95 * len(self.latencies_s) // 100) - 1]

    @property
    def calls_per_s(self) -> float:
        """Calls in a second, of all runners."""
        return len(self.latencies_s) / self.elapsed_s


def grid(threads: Sequence[int], runners: Sequence[int], *, cores: int) -> list[Cell]:
    """Return a cell for each pair of numbers; what needs more than the cores is skipped."""
    cells = []
    for count in dict.fromkeys(runners):
        for intra in dict.fromkeys(threads):
            wanted = intra * count
            cells.append(Cell(intra, count, f"{wanted} threads are more than {cores} cores" if wanted > cores else ""))
    return cells


def fastest(cells: Sequence[Cell]) -> Cell:
    """Return the cell of the least median latency."""
    return min((one for one in cells if not one.skipped), key=lambda one: one.median_s)


def busiest(cells: Sequence[Cell]) -> Cell:
    """Return the cell with the most calls in a second."""
    return max((one for one in cells if not one.skipped), key=lambda one: one.calls_per_s)


def measure(
    module: CompiledModule,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    cells: Sequence[Cell],
    *,
    effort: Effort,
    told: Callable[[Cell], None] = lambda _: None,
) -> None:
    """Measure the cells that are not skipped, in turns, and add what is found to them.

    Args:
        module: the module, which takes these arguments.
        args: positional arguments of each call.
        kwargs: arguments by name.
        cells: what to measure.
        effort: how long a cell is measured.
        told: called with a cell after each of its turns.

    Raises:
        InputError: the module does not take the arguments.
    """
    module(*args, **kwargs)
    measured = [cell for cell in cells if not cell.skipped]
    if most := max((cell.runners for cell in measured), default=0):
        module.runners(most, intra=1).close()  # room for all of them is made once
    for _ in range(ROUNDS):
        for cell in measured:
            measure_turn(module, args, kwargs, cell, effort.of_a_turn())
            told(cell)


def measure_turn(
    module: CompiledModule, args: tuple[Any, ...], kwargs: Mapping[str, Any], cell: Cell, effort: Effort
) -> None:
    """Measure a cell for one turn, after calls that do not count, and add what is found to it."""
    if cell.runners == 1:
        with thread_counts.threads(intra=cell.threads):
            found = _warm_and_timed(lambda: module(*args, **kwargs), effort, 1)
    else:
        with module.runners(cell.runners, intra=cell.threads) as runners:
            found = _warm_and_timed(lambda: runners.submit(*args, **kwargs).result(), effort, cell.runners)
    cell.latencies_s += found[0]
    cell.elapsed_s += found[1]


def _warm_and_timed(call: Callable[[], object], effort: Effort, callers: int) -> tuple[list[float], float]:
    _timed(call, effort.warm_up, callers)
    return _timed(call, effort, callers)


def _timed(call: Callable[[], object], effort: Effort, callers: int) -> tuple[list[float], float]:
    """Return the seconds of each call of so many callers, and those of all of them together."""
    start = threading.Barrier(callers)

    def loop() -> list[float]:
        start.wait()
        began_s = time.perf_counter()
        latencies_s: list[float] = []
        while not _is_done(effort, len(latencies_s) * callers, time.perf_counter() - began_s):
            before_s = time.perf_counter()
            call()
            latencies_s.append(time.perf_counter() - before_s)
        return latencies_s

    if callers == 1:
        before_s = time.perf_counter()
        return loop(), time.perf_counter() - before_s
    with ThreadPoolExecutor(callers) as pool:
        before_s = time.perf_counter()
        found = [one.result() for one in [pool.submit(loop) for _ in range(callers)]]
        elapsed_s = time.perf_counter() - before_s
    return [one for latencies_s in found for one in latencies_s], elapsed_s


def _is_done(effort: Effort, calls: int, took_s: float) -> bool:
    if effort.calls is not None:
        return calls >= effort.calls
    return calls >= _LEAST_CALLS and took_s >= effort.seconds
