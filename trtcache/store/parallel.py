"""A function called for many items in several threads, for requests that mostly wait."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(function: Callable[[T], R], items: Iterable[T], jobs: int) -> Iterator[tuple[T, R]]:
    """Yield each item with its result, as they come, from ``jobs`` threads at once.

    With one job, the calls are made in this thread. If a call raises, its exception is raised here, and what has not
    begun is not called. The threads are daemons: an interrupt does not wait for a request that hangs.
    """
    everything = list(items)
    if jobs <= 1:
        yield from ((item, function(item)) for item in everything)
        return
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[T, R | None, BaseException | None]] = queue.SimpleQueue()
    for item in everything:
        waiting.put(item)
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((item, function(item), None))
            except BaseException as error:  # noqa: BLE001  # raised by the caller's thread
                done.put((item, None, error))

    for _ in range(min(jobs, len(everything))):
        threading.Thread(target=run, name="trtcache-transfer", daemon=True).start()
    try:
        for _ in everything:
            item, result, error = done.get()
            if error is not None:
                raise error
            yield item, result  # type: ignore[misc]  # a result, as there is no error
    finally:
        stopped.set()


def call_in_thread(function: Callable[[], R]) -> R:
    """Call a function in a thread and return its result, so that an interrupt does not wait for it."""
    (result,) = [result for _, result in map_in_threads(lambda _: function(), [None], 2)]
    return result
