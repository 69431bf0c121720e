"""Runs the parts of one call side by side, each as soon as all that it takes is there.

The caller's thread runs parts as well, and waits for nothing but parts that another thread is in. So each call comes to
its end however few threads are free, also where there are none any more because the interpreter is ending.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import torch

from trtcache.config import threads as thread_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trtcache.config.threads import InForce, Threads
    from trtcache.runtime.precedence import Precedence

log = logging.getLogger(__name__)


class InterOp:
    """How the parts of a program's calls run side by side: threads for that, made when they are first wanted.

    Attributes:
        threads: what the settings say.
        took_s: the least that each part took so far.
    """

    def __init__(self, threads: Threads, *, calls: int = 1) -> None:
        """Make no thread yet.

        Args:
            threads: what the settings say.
            calls: how many calls are to be helped at once.
        """
        self.threads = threads
        self.took_s: dict[int, float] = {}
        self._calls = calls
        # A fork has its parent's crews and none of their threads; so the process is a part of what they are known by.
        self._crews: dict[tuple[int, int, int, bool], Crew] = {}

    def crew(self, at_once: int) -> Crew | None:
        """Return the threads for a call here of which so many parts can run at once; None if they run in turn."""
        said = thread_counts.current()
        inter = min(at_once, said.inter or self.threads.inter or 1)
        if inter == 1:
            return None
        is_said = bool(said.intra or self.threads.intra)
        known = (os.getpid(), inter, torch.get_num_threads(), is_said)
        return self._crews.get(known) or self._new(known)

    def _new(self, known: tuple[int, int, int, bool]) -> Crew | None:
        _, inter, intra, _ = known
        found = thread_counts.in_force(self.threads)
        if found.intra_from == "cores":  # nobody chose: parts share them
            intra = max(1, found.cores // (inter * self._calls))
        try:
            made = Crew((inter - 1) * self._calls, inter, intra)
        except RuntimeError as error:  # the interpreter is ending, or the system gives no more threads
            log.debug("parts run one after the other: %s", error)
            return None
        kept = self._crews.setdefault(known, made)
        if kept is not made:  # another thread was first
            made.close()
        elif self._calls == 1 and (crowding := _crowding(inter, intra, found)):
            log.warning("%s", crowding)
        return kept


def _crowding(inter: int, intra: int, found: InForce) -> str:
    """Return a sentence with numbers where parts at once have more threads than there are cores; else nothing."""
    if inter * intra <= found.cores:
        return ""
    fitting = min(inter, found.cores)
    return (
        f"{inter} parts at once with {intra} threads each ({found.intra_from}) are {inter * intra} threads on "
        f"{found.cores} cores; trtcache.threads(intra={found.cores // fitting}, inter={fitting}) fits"
    )


class Crew:
    """Threads that help calls with their parts. Belongs to the process that made it.

    Attributes:
        inter: how many parts of a call run at once at most, with the caller's own.
        intra: how many threads work on each part.
    """

    def __init__(self, helpers: int, inter: int, intra: int) -> None:
        """Start the threads and wait until each has its number of intra-op threads.

        A thread that began later could find the number that a call has set for its own time, and keep that.

        Raises:
            RuntimeError: there can be no such threads.
        """
        self.inter, self.intra = inter, intra
        self._pool = ThreadPoolExecutor(helpers, "trtcache-part", initializer=thread_counts.begin, initargs=(intra,))
        begun = threading.Barrier(helpers + 1)
        try:
            for _ in range(helpers):
                self._pool.submit(begun.wait)
            begun.wait()
        except BaseException:  # an interrupt as well: the end of the interpreter waits for threads that wait here
            begun.abort()
            self.close()
            raise

    def help(self, work: Callable[[], None]) -> bool:
        """Have a thread do some work as soon as one is free; False if the interpreter is ending."""
        try:
            self._pool.submit(copy_context().run, work)
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        """Let the threads end when they have nothing left to do."""
        self._pool.shutdown(wait=False)


@dataclass(frozen=True, slots=True)
class TorchState:
    """What torch keeps for each thread, as far as it is given to the threads that help; there are no gradients.

    Attributes:
        inference: whether it is in inference mode.
        autocast: the dtype of autocast on a CPU, and whether it keeps casts; None if it is off.
    """

    inference: bool
    autocast: tuple[torch.dtype, bool] | None

    @classmethod
    def here(cls) -> TorchState | None:
        """Return this thread's; None if there is more to it: modes that look on, or another default device."""
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            return None
        on = torch.is_autocast_enabled("cpu")
        autocast = (torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()) if on else None
        return cls(torch.is_inference_mode_enabled(), autocast)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be in this state while the block runs."""
        with ExitStack() as stack:
            if self.inference:
                stack.enter_context(torch.inference_mode())
            stack.enter_context(torch.no_grad())
            if self.autocast is not None:
                dtype, cached = self.autocast
                stack.enter_context(torch.autocast("cpu", dtype=dtype, cache_enabled=cached))
            yield


class Call:
    """One call of a program, whose parts run side by side.

    Of parts that can run, the one with the longest way before it comes first: four encoders that took 1, 4, 9 and 16
    would take two threads 20 in that order, and take them 16.
    """

    def __init__(
        self,
        order: Precedence,
        run: Callable[[int], None],
        release: Callable[[int], None],
        state: TorchState,
        took_s: dict[int, float],
    ) -> None:
        """Begin with the parts that take nothing of others.

        Args:
            order: which part comes after which.
            run: runs a part; several threads are in it at once.
            release: forgets what nobody needs after a part; one thread is in it at a time.
            state: the caller's.
            took_s: the least that each part took in calls before this one, which is noted here as well.
        """
        self._order, self._run, self._release, self._state = order, run, release, state
        self._took_s, self._ways_s = took_s, order.ways_s(took_s)
        self._before = list(order.before)
        self._ready = [(-self._ways_s[number], number) for number, count in enumerate(order.before) if not count]
        heapify(self._ready)
        # A lock written in C: an interrupt in Condition.__enter__ or __exit__, written in Python, leaves it locked.
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._helped, self._helpers = 0, 0  # parts that helpers are in; helpers that were asked
        self._waits = self._ends = False
        self._failed: dict[int, BaseException] = {}

    def finish(self, crew: Crew) -> None:
        """Run all parts, with the help of a crew.

        Whatever a part raises is raised here, once no part is under way; of several the first one's. No other part is
        begun then.
        """
        try:
            self._ask(crew, self._wanted(crew))
            while (number := self._next_or_wait()) is not None:
                self._one(number, crew)
        finally:
            self._end()
        if self._failed:
            try:
                raise self._failed[min(self._failed)]
            finally:
                self._failed.clear()  # its traceback has this call

    def _work(self, crew: Crew) -> None:
        """Run parts in another thread than the caller's, as long as some can be run."""
        with self._state.entered():
            number = self._next()
            while number is not None:
                self._one(number, crew)
                number = self._next(number)

    def _one(self, number: int, crew: Crew) -> None:
        began_s = time.perf_counter()
        try:
            self._run(number)
        except BaseException as error:  # noqa: BLE001  # the caller's thread raises it
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
                    heappush(self._ready, (-self._ways_s[other], other))
            wanted = self._wanted(crew)
        self._ask(crew, wanted)

    def _wanted(self, crew: Crew) -> int:
        """Return how many more threads have something to do, and count them as asked."""
        wanted = min(len(self._ready) - 1 - self._waits, crew.inter - 1 - self._helpers)
        self._helpers += max(0, wanted)
        return wanted

    def _ask(self, crew: Crew, wanted: int) -> None:
        for _ in range(wanted):
            crew.help(lambda: self._work(crew))

    def _next(self, last: int | None = None) -> int | None:
        """Return the next part for a helper, who leaves where there is none; ``last`` is the one that he ran."""
        with self._lock:
            self._helped -= last is not None
            number = heappop(self._ready)[1] if self._ready else None
            self._helped += number is not None
            self._helpers -= number is None
            if self._waits:
                self._change.notify()
        return number

    def _next_or_wait(self) -> int | None:
        """Return the next part for the caller; None if there is no other to come."""
        with self._lock:
            self._waits = True
            while not self._ready and self._helped:
                self._change.wait()
            self._waits = False
            return heappop(self._ready)[1] if self._ready else None

    def _end(self) -> None:
        """Begin nothing more, wait for helpers, and let go of the values of the call: helpers may yet come to it."""
        with self._lock:
            self._ready.clear()
            self._waits = self._ends = True  # an interrupt comes anywhere: helpers are to say when they are done
            while self._helped:
                self._change.wait()
            self._run = self._release = _nothing


def _nothing(_: int) -> None:
    """Do nothing."""
