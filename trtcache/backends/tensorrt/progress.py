"""Forwarding of TensorRT's build progress to a watcher, and of its cancellation back."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trtcache.progress import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trtcache.progress import Watcher


class Phases:
    """The phases of a build; an exception of the watcher cancels the build.

    No exception may pass through TensorRT's own code: the first is kept in ``error``, and raised after the build.
    """

    def __init__(self, watcher: Watcher, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Watch with a function; ``interrupted`` returns whether Ctrl-C cancelled the build."""
        self._watcher = watcher
        self._interrupted = interrupted
        self._lock = threading.Lock()
        self._sizes: dict[str, tuple[int, int]] = {}
        self.error: BaseException | None = None
        self.cancelled = ""

    def start(self, name: str, parent: str | None, steps: int) -> None:
        """Record the start of a phase."""
        with self._lock:
            depth = self._sizes[parent][1] + 1 if parent in self._sizes else 0
            self._sizes[name] = (steps, depth)
        self._report(name, 0)

    def step(self, name: str, done: int) -> bool:
        """Record a finished step of a phase; return whether to continue the build."""
        return self._report(name, done + 1)

    def finish(self, name: str) -> None:
        """Record the end of a phase, with all its steps done or not."""
        self._report(name, self._sizes.get(name, (0, 0))[0])
        with self._lock:
            self._sizes.pop(name, None)

    def _report(self, name: str, done: int) -> bool:
        if self.error is None and not self.cancelled:
            steps, depth = self._sizes.get(name, (0, 0))
            try:
                if self._interrupted() or self._watcher(Step(name, done, steps, depth)) is False:
                    self.cancelled = name
            except BaseException as error:  # noqa: BLE001  # Ctrl-C too: it is raised again after TensorRT has returned
                self.error, self.cancelled = error, name
        return not self.cancelled


def monitor_of(trt: Any, phases: Phases) -> Any:
    """Return a TensorRT progress monitor for phases."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # a class of an extension module
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return phases.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            phases.finish(phase_name)

    return Monitor()


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Defer Ctrl-C until TensorRT has returned; yield a function that returns whether there was one.

    Python raises KeyboardInterrupt in any running function, but TensorRT's callbacks must not raise: its logger lost
    one of two. A program's own handler, and threads that receive no signals, are left alone.

    Raises:
        KeyboardInterrupt: there was one, regardless of the result.
    """
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread() or not _is_pythons():
        yield received.is_set
        return
    signal.signal(signal.SIGINT, lambda *_: received.set())
    try:
        yield received.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if received.is_set():
            raise KeyboardInterrupt


def _is_pythons() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
