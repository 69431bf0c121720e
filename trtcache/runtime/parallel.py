"""Parallel execution of one call's partitions, each as soon as its inputs are there.

The caller's thread runs partitions as well, and waits only for partitions that another thread is running. So each call
finishes however few threads are free, even none because the interpreter is exiting.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from trtcache.config import threads as thread_counts
from trtcache.config.frozen import frozen_dataclass
from trtcache.runtime.verify import AutocastState

if TYPE_CHECKING:
    from trtcache.config.threads import EffectiveThreads, Threads

log = logging.getLogger(__name__)


class InterOp:
    """Threads that run the partitions of calls in parallel, started on first use.

    Attributes:
        threads: the value of ``settings.threads``.
        took_s: the minimum time of each partition so far.
    """

    def __init__(self, threads: Threads, *, calls: int = 1) -> None:
        """Start no thread yet.

        Args:
            threads: the value of ``settings.threads``.
            calls: the number of concurrent calls to help.
        """
        self.threads = threads
        self.took_s: dict[int, float] = {}
        self._calls = calls
        # A forked child has its parent's pools but not their threads, so the process ID is part of the key.
        self._pools: dict[tuple[int, int, int, bool], WorkerPool] = {}

    def pool(self, at_once: int) -> WorkerPool | None:
        """Return the pool for a call with this many parallel partitions; None if they run in sequence."""
        chosen = thread_counts.current()
        inter = min(at_once, chosen.inter or self.threads.inter or 1)
        if inter == 1:
            return None
        is_chosen = bool(chosen.intra or self.threads.intra)
        pool_key = (os.getpid(), inter, torch.get_num_threads(), is_chosen)
        return self._pools.get(pool_key) or self._new(pool_key)

    def _new(self, pool_key: tuple[int, int, int, bool]) -> WorkerPool | None:
        _, inter, intra, _ = pool_key
        found = thread_counts.effective_threads(self.threads)
        if found.intra_from == "cores":  # not chosen: partitions share the cores
            intra = max(1, found.cores // (inter * self._calls))
        try:
            made = WorkerPool((inter - 1) * self._calls, inter, intra)
        except RuntimeError as error:  # the interpreter is exiting, or the system has no more threads
            log.debug("parts run one after the other: %s", error)
            return None
        kept = self._pools.setdefault(pool_key, made)
        if kept is not made:  # another thread was faster
            made.close()
        elif self._calls == 1 and (warning := _format_oversubscription(inter, intra, found)):
            log.warning("%s", warning)
        return kept


def _format_oversubscription(inter: int, intra: int, found: EffectiveThreads) -> str:
    """Return a warning if parallel partitions have more threads than there are cores; else an empty string."""
    if inter * intra <= found.cores:
        return ""
    fitting = min(inter, found.cores)
    return (
        f"{inter} parts at once with {intra} threads each ({found.intra_from}) are {inter * intra} threads on "
        f"{found.cores} cores; trtcache.threads(intra={found.cores // fitting}, inter={fitting}) fits"
    )


class WorkerPool:
    """Threads that help calls with their partitions. Belongs to the process that created it.

    Attributes:
        inter: the maximum number of a call's partitions that run in parallel, including the caller's.
        intra: intra-op threads of each partition.
    """

    def __init__(self, helpers: int, inter: int, intra: int) -> None:
        """Start the threads and wait until each has its number of intra-op threads.

        A thread that started later could see a number that a call sets temporarily, and keep it.

        Raises:
            RuntimeError: the threads cannot be started.
        """
        self.inter, self.intra = inter, intra
        self._pool = ThreadPoolExecutor(
            helpers, "trtcache-part", initializer=thread_counts.initialize, initargs=(intra,)
        )
        started = threading.Barrier(helpers + 1)
        try:
            for _ in range(helpers):
                self._pool.submit(started.wait)
            started.wait()
        except BaseException:  # interrupts too: the interpreter's exit waits for threads that wait here
            started.abort()
            self.close()
            raise

    def help(self, work: Callable[[], None]) -> bool:
        """Submit work to a thread; False if the interpreter is exiting."""
        try:
            self._pool.submit(copy_context().run, work)
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        """Let the threads end once they are idle."""
        self._pool.shutdown(wait=False)


@frozen_dataclass
class TorchState:
    """The thread-local state of torch that helper threads take over; there are no gradients.

    Attributes:
        inference: whether inference mode is on.
        autocast: the state of autocast.
    """

    inference: bool
    autocast: AutocastState

    @classmethod
    def here(cls) -> TorchState | None:
        """Return this thread's state; None if it has more: active modes, or another default device."""
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            return None
        return cls(torch.is_inference_mode_enabled(), AutocastState.here())

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Set this state for the block."""
        with torch.inference_mode() if self.inference else nullcontext(), torch.no_grad(), self.autocast.apply():
            yield


class Call:
    """One call of a program whose partitions run in parallel.

    Of the ready partitions the one with the longest remaining path runs first: four encoders that take 1, 4, 9 and 16
    would take two threads 20 in that order; this way they take 16.
    """

    def __init__(
        self,
        order: Precedence,
        run: Callable[[int], None],
        release: Callable[[int], None],
        state: TorchState,
        took_s: dict[int, float],
    ) -> None:
        """Start with the partitions that use no other's results.

        Args:
            order: the order of partitions.
            run: runs a partition; called by several threads at once.
            release: frees values that are unused after a partition; called by one thread at a time.
            state: the caller's torch state.
            took_s: the minimum time of each partition in earlier calls; updated by this one.
        """
        self._order, self._run, self._release, self._state = order, run, release, state
        self._took_s, self._remaining_s = took_s, order.remaining_s(took_s)
        self._before = list(order.before)
        self._ready = [(-self._remaining_s[number], number) for number, count in enumerate(order.before) if not count]
        heapify(self._ready)
        # A lock implemented in C: an interrupt in Condition.__enter__ or __exit__, in Python, would leave it locked.
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._helped, self._helpers = 0, 0  # partitions that helpers run; helpers started
        self._waits = self._ends = False
        self._failed: dict[int, BaseException] = {}

    def finish(self, pool: WorkerPool) -> None:
        """Run all partitions with the help of a pool.

        An exception of a partition is raised here once no partition is running, the first partition's if there are
        several. No further partition is started then.
        """
        try:
            self._start_helpers(pool, self._reserve_helpers(pool))
            while (number := self._next_or_wait()) is not None:
                self._run_part(number, pool)
        finally:
            self._end()
        if self._failed:
            try:
                raise self._failed[min(self._failed)]
            finally:
                self._failed.clear()  # its traceback references this call

    def _work(self, pool: WorkerPool) -> None:
        """Run partitions in a helper thread while some are ready."""
        with self._state.apply():
            number = self._next()
            while number is not None:
                self._run_part(number, pool)
                number = self._next(number)

    def _run_part(self, number: int, pool: WorkerPool) -> None:
        began_s = time.perf_counter()
        try:
            self._run(number)
        except BaseException as error:  # noqa: BLE001  # raised by the caller's thread
            with self._lock:
                self._failed[number] = error
                self._ready.clear()
                self._ends = True
            return
        seconds = time.perf_counter() - began_s
        self._took_s[number] = min(self._took_s.get(number, seconds), seconds)
        with self._lock:
            self._release(number)
            for other in self._order.after[number]:
                self._before[other] -= 1
                if not self._before[other] and not self._ends:
                    heappush(self._ready, (-self._remaining_s[other], other))
            wanted = self._reserve_helpers(pool)
        self._start_helpers(pool, wanted)

    def _reserve_helpers(self, pool: WorkerPool) -> int:
        """Return how many more threads have work, and count them as started."""
        wanted = min(len(self._ready) - 1 - self._waits, pool.inter - 1 - self._helpers)
        self._helpers += max(0, wanted)
        return wanted

    def _start_helpers(self, pool: WorkerPool, wanted: int) -> None:
        for _ in range(wanted):
            pool.help(lambda: self._work(pool))

    def _next(self, last: int | None = None) -> int | None:
        """Return the next partition for a helper, which exits on None; ``last`` is the one it has run."""
        with self._lock:
            self._helped -= last is not None
            number = heappop(self._ready)[1] if self._ready else None
            self._helped += number is not None
            self._helpers -= number is None
            if self._waits:
                self._change.notify()
        return number

    def _next_or_wait(self) -> int | None:
        """Return the next partition for the caller; None if there are no more."""
        with self._lock:
            self._waits = True
            while not self._ready and self._helped:
                self._change.wait()
            self._waits = False
            return heappop(self._ready)[1] if self._ready else None

    def _end(self) -> None:
        """Start nothing more, wait for helpers, and drop the call's values: late helpers may still reference it."""
        with self._lock:
            self._ready.clear()
            self._waits = self._ends = True  # an interrupt may come anywhere: helpers must notify when they are done
            while self._helped:
                self._change.wait()
            self._run = self._release = lambda _: None


@frozen_dataclass
class Precedence:
    """The order of partitions that run in parallel where possible.

    Attributes:
        before: for each partition, the number of its direct predecessors.
        after: for each partition, its direct successors.
        at_once: an upper bound on the partitions that run in parallel; exact (1) for a chain.
    """

    before: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    at_once: int

    @classmethod
    def of(cls, needs: Sequence[Iterable[int]], turns: Iterable[Sequence[int]]) -> Precedence:
        """Return the order of partitions.

        Args:
            needs: for each partition, those whose results it uses.
            turns: sequences of partitions that run in this order in any case.
        """
        direct = [set(one) for one in needs]
        for turn in turns:
            for before, after in pairwise(turn):
                direct[after].add(before)
        later: list[list[int]] = [[] for _ in direct]
        depths: list[int] = []
        for number, predecessors in enumerate(direct):
            depths.append(1 + max((depths[other] for other in predecessors), default=0))
            for other in predecessors:
                later[other].append(number)
        longest = max(depths, default=0)
        return cls(tuple(map(len, direct)), tuple(map(tuple, later)), len(direct) - longest + 1)

    def remaining_s(self, took_s: Mapping[int, float]) -> list[float]:
        """Return for each partition the length of the longest path from its start to the end, from measured times."""
        lengths = [0.0] * len(self.after)
        for number in reversed(range(len(lengths))):
            lengths[number] = took_s.get(number, 0.0) + max(
                (lengths[other] for other in self.after[number]), default=0.0
            )
        return lengths
