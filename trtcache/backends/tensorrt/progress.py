"""Hands what TensorRT tells of a build to whoever watches it, and his word to call it off to TensorRT."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from trtcache.progress import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.progress import Watcher


class Phases:
    """The phases that a build is in, as TensorRT tells them; an exception of the watcher's calls the build off.

    No exception may pass through TensorRT's own code: the first is kept in ``error``, and raised after the build.
    """

    def __init__(self, watcher: Watcher, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Watch with a function; ``interrupted`` says whether Ctrl-C has called the build off."""
        self._watcher = watcher
        self._interrupted = interrupted
        self._lock = threading.Lock()
        self._sizes: dict[str, tuple[int, int]] = {}
        self.error: BaseException | None = None
        self.cancelled = ""

    def start(self, name: str, parent: str | None, steps: int) -> None:
        """Note that a phase began."""
        with self._lock:
            depth = self._sizes[parent][1] + 1 if parent in self._sizes else 0
            self._sizes[name] = (steps, depth)
        self._tell(name, 0)

    def step(self, name: str, done: int) -> bool:
        """Note that a step of a phase is done, and say whether the build is to go on."""
        return self._tell(name, done + 1)

    def finish(self, name: str) -> None:
        """Note that a phase ended, all of its steps or not."""
        self._tell(name, self._sizes.get(name, (0, 0))[0])
        with self._lock:
            self._sizes.pop(name, None)

    def _tell(self, name: str, done: int) -> bool:
        if self.error is None and not self.cancelled:
            steps, depth = self._sizes.get(name, (0, 0))
            try:
                if self._interrupted() or self._watcher(Step(name, done, steps, depth)) is False:
                    self.cancelled = name
            except BaseException as error:  # noqa: BLE001  # Ctrl-C too: it is raised again when TensorRT has returned
                self.error, self.cancelled = error, name
        return not self.cancelled


def monitor_of(trt: Any, phases: Phases) -> Any:
    """Return TensorRT's monitor over phases."""

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
