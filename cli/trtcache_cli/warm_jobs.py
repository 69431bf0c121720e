"""Cells of ``trtcache warm`` as jobs of a scheduler: submit them, report them as they end, cancel them on Ctrl-C.

Signals that end this process are handled as Ctrl-C is, except for SIGKILL.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from trtcache_cli.output import complain, note
from trtcache_cli.termination import SIGNALS, raise_terminated
from trtcache_cli.warm_progress import Board

if TYPE_CHECKING:
    from trtcache_cli.matrix import Cell
    from trtcache_cli.warm_run import Outcome

_POLL_S = 0.5


class CancelError(Exception):
    """A scheduler did not cancel all jobs; the message has its answer."""


class Jobs(Protocol):
    """Jobs of one run on a scheduler. A job that dies is the scheduler's to run again; here it has not ended."""

    def submit(self, cells: Sequence[Cell]) -> None:
        """Submit a job for each cell.

        Raises:
            SettingsError: the scheduler does not take them.
        """
        ...

    def poll(self) -> list[Outcome]:
        """Return what has ended since the last call."""
        ...

    def states(self) -> Mapping[Cell, str]:
        """Return the state of each job that has not ended, in the scheduler's word."""
        ...

    def cancel(self) -> int:
        """Cancel all jobs that have not ended, and return how many; also after a submission that failed half-way.

        Raises:
            CancelError: the scheduler did not cancel all of them.
        """
        ...


def run_jobs(jobs: Jobs, cells: Sequence[Cell]) -> list[Outcome]:
    """Run cells as jobs until all of them have ended.

    Raises:
        SettingsError: the scheduler does not take them.
        KeyboardInterrupt: Ctrl-C; the jobs are cancelled.
    """
    outcomes: list[Outcome] = []
    with raise_terminated(), Board(len(cells)) as board:
        try:
            jobs.submit(cells)
            while len(outcomes) < len(cells):
                for outcome in jobs.poll():
                    outcomes.append(outcome)
                    board.end(outcome)
                for cell, state in jobs.states().items():
                    board.set_state(cell, state)
                time.sleep(_POLL_S)
        except BaseException:
            try:
                if count := jobs.cancel():
                    note(f"{count} jobs were cancelled")
            except CancelError as error:
                complain(f"trtcache: warning: {error}")
            raise
    return outcomes


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Deliver Ctrl-C after the block, also to processes that it starts: no job is submitted without its number.

    Those processes have the signal blocked, as this thread has; another thread of this process gets it nevertheless.
    """
    arrived: list[int] = []
    numbers: tuple[signal.Signals, ...] = (signal.SIGINT, *SIGNALS)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    handlers = {each: signal.signal(each, lambda number, _: arrived.append(number)) for each in numbers}
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in arrived[:1]:
            signal.raise_signal(number)
