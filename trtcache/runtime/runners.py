"""Runners: threads that call one compiled module in parallel, with its weights in memory once."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trtcache.backends.protocol import Engine, Parallel
from trtcache.config import threads as thread_counts
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import IncompatibleEngineError, RunError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from trtcache.config.threads import EffectiveThreads

log = logging.getLogger(__name__)

_AHEAD = 4
"""Calls that ``map`` submits ahead of the output it yields, for each runner."""


@frozen_dataclass
class RunnersReport:
    """How calls run. Printing it gives one line.

    Attributes:
        runners: how many threads call the module.
        intra: how many threads work on each call.
        intra_from: what set it; ``cores / runners`` if nothing did.
        cores: the number of cores that this process may use.
        why_not: why calls run in sequence; empty if they run in parallel.
        inter: how many partitions of each call run in parallel.
    """

    runners: int
    intra: int
    intra_from: str
    cores: int
    why_not: str = ""
    inter: int = 1

    @property
    def is_parallel(self) -> bool:
        """Whether calls run in parallel."""
        return not self.why_not

    @property
    def oversubscription(self) -> str:
        """A warning if there are more threads than cores; else empty."""
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
        how = "in parallel" if self.is_parallel else f"in sequence: {self.why_not}"
        each = f"part ({self.inter} at once)" if self.inter > 1 else "call"
        threads = f"{self.intra} threads for each {each} ({self.intra_from})"
        numbers = f"{self.runners} runners, {threads}, {self.cores} cores"
        return f"{numbers}; calls run {how}" + (f"\n  {self.oversubscription}" if self.oversubscription else "")


class Runners:
    """Call a module from a pool of threads, each with its own number of intra-op threads.

    A refit of the module applies to these calls too. Submitted calls are finished before the interpreter exits. After a
    fork, the child recreates threads and engine at its first call; calls that the parent submitted stay with the
    parent.

    Attributes:
        report: how calls run.
    """

    def __init__(self, call: Callable[..., Any], report: RunnersReport) -> None:
        """Start no thread yet; each starts when there is a call for it."""
        self.report = report
        self._call = call
        self._closed = False
        self._pools: dict[int, ThreadPoolExecutor] = {os.getpid(): self._pool()}
        if report.oversubscription:
            log.warning("%s", report.oversubscription)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the module in one of the threads; the future has its outputs or its error.

        Raises:
            RunError: the runners are closed.
        """
        return self._open_pool().submit(self._call, *args, **kwargs)

    def map(self, *arguments: Iterable[Any]) -> Iterator[Any]:
        """Yield the outputs of a call for each item, in order, like Python's ``map``.

        Items are consumed lazily, a few per runner ahead of the outputs, so they may be more than fit into memory.

        Raises:
            RunError: the runners are closed. An error of a call is raised in its place.
        """
        items = zip(*arguments, strict=False)  # like Python's map
        ahead = deque(self.submit(*item) for item in islice(items, _AHEAD * self.report.runners))
        self._open_pool()
        return self._in_order(ahead, items)

    def _in_order(self, ahead: deque[Future[Any]], items: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        try:
            while ahead:
                output = ahead.popleft().result()
                ahead.extend(self.submit(*item) for item in islice(items, 1))
                yield output
        finally:
            for future in ahead:
                future.cancel()

    def close(self) -> None:
        """Accept no more calls, and wait for those submitted."""
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
            raise RunError("runners", "they are closed; create new ones with module.runners(...)")
        process = os.getpid()
        # A forked child has the parent's pool but not its threads: what is submitted to it never runs.
        return self._pools.get(process) or self._pools.setdefault(process, self._pool())

    def _pool(self) -> ThreadPoolExecutor:
        # New threads start with the process's number of threads, not with their caller's.
        arguments = (self.report.intra, self.report.inter)
        return ThreadPoolExecutor(
            self.report.runners, "trtcache-runner", initializer=thread_counts.initialize, initargs=arguments
        )


def report_on(
    runners: int, intra: int | None, found: EffectiveThreads, why_not: str, *, inter: int = 1
) -> RunnersReport:
    """Return the report for a number of runners. Without an explicit number of threads they share the cores."""
    intra_from = "runners"
    if intra is None:
        intra, intra_from = found.intra, found.intra_from
        if intra_from == "cores":
            intra, intra_from = max(1, found.cores // (runners * inter)), "cores / runners"
    return RunnersReport(runners, intra, intra_from, found.cores, why_not, inter)


def parts_at_once(engine: Engine, found: EffectiveThreads) -> int:
    """Return how many partitions of a call run in parallel: the chosen number, limited by the program."""
    return 1 if found.inter_from == "cores" else min(found.inter, getattr(engine, "at_once", 1))


def parallel_engine(engine: Engine, calls: int, *, changes_weights: bool) -> tuple[Engine, str]:
    """Return an engine that accepts concurrent calls; or the same engine and the reason why it does not."""
    if changes_weights:
        return engine, "calls change the module's buffers"
    if not isinstance(engine, Parallel):
        return engine, f"{type(engine).__name__} does not support it"
    try:
        return engine.parallel(calls), ""
    except (IncompatibleEngineError, RunError) as error:
        return engine, error.why
