"""Threads that call one compiled module side by side: one engine, its weights in memory once."""

from __future__ import annotations

import logging
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from trtcache.backends.protocol import Parallel
from trtcache.config import threads as thread_counts
from trtcache.errors import IncompatibleEngineError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from types import TracebackType

    from trtcache.backends.protocol import Engine
    from trtcache.config.threads import InForce

log = logging.getLogger(__name__)

_AHEAD = 4
"""Calls that ``map`` has submitted beyond the one whose outputs are taken, for each runner."""


@dataclass(frozen=True, slots=True)
class RunnersReport:
    """How calls run. Printing it gives a line.

    Attributes:
        runners: how many threads call the module.
        intra: how many threads work on each call.
        intra_from: who said so; ``shared out`` where nobody did and the runners share the cores.
        cores: those that this process may use.
        why_not: why calls run one after the other all the same; empty where they run side by side.
        inter: how many parts of each call run side by side.
    """

    runners: int
    intra: int
    intra_from: str
    cores: int
    why_not: str = ""
    inter: int = 1

    @property
    def side_by_side(self) -> bool:
        """Whether calls run at the same time."""
        return not self.why_not

    @property
    def crowding(self) -> str:
        """A sentence with numbers where there are more threads than cores; else empty."""
        wanted = self.runners * self.inter * self.intra
        if wanted <= self.cores:
            return ""
        fitting = min(self.runners, self.cores)
        parts = f"{self.inter} parts at once of " if self.inter > 1 else ""
        alone = " with trtcache.threads(inter=1)" if parts else ""
        return (
            f"{self.runners} runners with {parts}{self.intra} threads each ({self.intra_from}) are {wanted} threads on "
            f"{self.cores} cores; runners({fitting}, intra={self.cores // fitting}){alone} fits"
        )

    def __str__(self) -> str:
        how = "side by side" if self.side_by_side else f"one after the other: {self.why_not}"
        each = f"part ({self.inter} at once)" if self.inter > 1 else "call"
        threads = f"{self.intra} threads for each {each} ({self.intra_from})"
        numbers = f"{self.runners} runners, {threads}, {self.cores} cores"
        return f"{numbers}; calls run {how}" + (f"\n  {self.crowding}" if self.crowding else "")


class Runners:
    """Calls a module from threads of its own, each with its number of intra-op threads.

    A refit of the module is these calls' as well. Calls that were submitted are finished before the interpreter ends.
    In a process that was forked, threads and engine are made anew at the first call; what the parent had submitted
    stays the parent's.

    Attributes:
        report: how calls run.
    """

    def __init__(self, call: Callable[..., Any], report: RunnersReport) -> None:
        """Start no thread yet: each starts when there is a call for it."""
        self.report = report
        self._call = call
        self._closed = False
        self._pools: dict[int, ThreadPoolExecutor] = {os.getpid(): self._pool()}
        if report.crowding:
            log.warning("%s", report.crowding)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the module with these arguments in one of the threads; the future has its outputs or its error.

        Raises:
            RunError: ``close`` was called.
        """
        return self._open_pool().submit(self._call, *args, **kwargs)

    def map(self, *arguments: Iterable[Any]) -> Iterator[Any]:
        """Return the outputs of a call for each item, in order; with several iterables, of calls with one of each.

        Items are taken as outputs are: a few for each runner are ahead, so that they may be more than fit into memory.

        Raises:
            RunError: ``close`` was called. An error of a call is raised in its place.
        """
        items = zip(*arguments, strict=False)  # as Python's own map
        ahead = deque(self.submit(*item) for item in islice(items, _AHEAD * self.report.runners))
        self._open_pool()
        return self._in_order(ahead, items)

    def _in_order(self, ahead: deque[Future[Any]], items: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        try:
            while ahead:
                answer = ahead.popleft().result()
                ahead.extend(self.submit(*item) for item in islice(items, 1))
                yield answer
        finally:
            for one in ahead:
                one.cancel()

    def close(self) -> None:
        """Take no more calls, and wait for those that were submitted."""
        self._closed = True
        if pool := self._pools.get(os.getpid()):
            pool.shutdown()

    def __enter__(self) -> Runners:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open_pool(self) -> ThreadPoolExecutor:
        if self._closed:
            raise RunError("runners", "they were closed; module.runners(...) makes others")
        process = os.getpid()
        # A fork has the parent's pool and none of its threads: what is submitted to it never runs.
        return self._pools.get(process) or self._pools.setdefault(process, self._pool())

    def _pool(self) -> ThreadPoolExecutor:
        # New threads begin with the process's number of threads, not with their caller's.
        arguments = (self.report.intra, self.report.inter)
        return ThreadPoolExecutor(
            self.report.runners, "trtcache-runner", initializer=thread_counts.begin, initargs=arguments
        )


def report_on(runners: int, intra: int | None, found: InForce, why_not: str, *, inter: int = 1) -> RunnersReport:
    """Return how so many runners run. Where nobody says how many threads a call has, they share the cores."""
    intra_from = "runners"
    if intra is None:
        intra, intra_from = found.intra, found.intra_from
        if intra_from == "cores":
            intra, intra_from = max(1, found.cores // (runners * inter)), "shared out"
    return RunnersReport(runners, intra, intra_from, found.cores, why_not, inter)


def parts_at_once(engine: Engine, found: InForce) -> int:
    """Return how many parts of a call run side by side: as many as somebody chose, if the program has them."""
    return 1 if found.inter_from == "cores" else min(found.inter, getattr(engine, "at_once", 1))


def side_by_side(engine: Engine, calls: int, *, changes_weights: bool) -> tuple[Engine, str]:
    """Return an engine that so many calls can be in at once; or the same one, and why not."""
    if changes_weights:
        return engine, "calls change the module's buffers"
    if not isinstance(engine, Parallel):
        return engine, f"{type(engine).__name__} has no way for it"
    try:
        return engine.parallel(calls), ""
    except (IncompatibleEngineError, RunError) as error:
        return engine, error.why
