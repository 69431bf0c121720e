"""Callbacks of TensorRT: messages to ``logging``, build progress to a watcher, and its cancellation back."""

from __future__ import annotations

import errno
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from trtcache.progress import Step, Watcher

if TYPE_CHECKING:
    from typing import BinaryIO


log = logging.getLogger("trtcache.backends.tensorrt")
_MAX_ERRORS = 20


def monitor_of(trt: Any, watcher: Watcher, errors: ErrorCollector) -> Any:
    """Return a TensorRT progress monitor that reports phases; the watcher or an exception cancels the build.

    No exception may pass through TensorRT's own code, so ``errors`` keeps it. ``cancelled`` is the name of the phase in
    which the build was cancelled.
    """

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # a class of an extension module
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.lock = threading.Lock()
            self.sizes: dict[str, tuple[int, int]] = {}  # the number of steps and the depth of each running phase
            self.cancelled = ""

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            with self.lock:
                depth = self.sizes[parent_phase][1] + 1 if parent_phase in self.sizes else 0
                self.sizes[phase_name] = (num_steps, depth)
            self.report(phase_name, 0)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return self.report(phase_name, step + 1)

        def phase_finish(self, phase_name: str) -> None:
            self.report(phase_name, self.sizes.get(phase_name, (0, 0))[0])  # with all its steps done or not
            with self.lock:
                self.sizes.pop(phase_name, None)

        def report(self, name: str, done: int) -> bool:
            if not self.cancelled:
                steps, depth = self.sizes.get(name, (0, 0))
                try:
                    if errors.error is not None or watcher(Step(name, done, steps, depth)) is False:
                        self.cancelled = name
                except BaseException as error:  # noqa: BLE001  # raised again after TensorRT has returned
                    errors.keep(error)
                    self.cancelled = name
            return not self.cancelled

    return Monitor()


def writer_of(trt: Any, file: BinaryIO) -> Any:
    """Return a TensorRT stream writer to a file.

    TensorRT ignores an exception of a write, and reports a truncated plan as a success: so the first is kept in
    ``error``, to be raised after the build, and later writes do nothing. ``size_bytes`` is what was written.
    """

    class Writer(trt.IStreamWriter):  # type: ignore[misc]  # a class of an extension module
        def __init__(self) -> None:
            trt.IStreamWriter.__init__(self)
            self.size_bytes = 0
            self.error: BaseException | None = None

        def write(self, data: bytes) -> int:
            if self.error is not None:
                return 0
            try:
                written = file.write(data)
            except BaseException as error:  # noqa: BLE001  # raised again after TensorRT has returned
                self.error = error
                return 0
            self.size_bytes += written
            if written != len(data):
                self.error = OSError(errno.EIO, f"only {written} of {len(data)} bytes were written", file.name)
            return written

    return Writer()


@contextmanager
def defer_exceptions_of_handlers(errors: ErrorCollector) -> Iterator[None]:
    """Let ``errors`` keep what the program's signal handlers raise, so that it is raised when TensorRT has returned.

    Python runs a handler, also that of Ctrl-C, in whichever function is running, and TensorRT's bindings ignore what is
    raised in a callback or at its start. Handlers run at once, as ever. In other threads than the main one there are
    none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    active = True

    def deferring(handler: Callable[[int, FrameType | None], object]) -> Callable[[int, FrameType | None], object]:
        def handle(number: int, frame: FrameType | None) -> object:
            try:
                return handler(number, frame)
            except BaseException as error:
                if not active:
                    raise
                errors.keep(error)
                return None

        return handle

    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    replaced = {number: deferring(handler) for number, handler in handlers.items() if callable(handler)}
    try:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        yield
    finally:
        active = False
        for number, handler in replaced.items():
            if signal.getsignal(number) is handler:  # none that the program has set meanwhile
                signal.signal(number, handlers[number])


class ErrorCollector:
    """The first errors that TensorRT logs while this is active, in order, and an exception of a callback.

    Attributes:
        thread: the thread that created it, and calls TensorRT.
        lines: the errors.
        error: the first exception that was kept, to be raised when TensorRT has returned; an interrupt or exit of the
            program replaces any other.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.thread = threading.get_ident()
        self.lines: list[str] = []
        self.error: BaseException | None = None

    def add(self, line: str) -> None:
        """Add an error; only the first few are kept."""
        if len(self.lines) < _MAX_ERRORS:
            self.lines.append(line)

    def keep(self, error: BaseException) -> None:
        """Keep an exception that may not pass through TensorRT's own code."""
        if self.error is None or (isinstance(self.error, Exception) and not isinstance(error, Exception)):
            self.error = error

    @property
    def text(self) -> str:
        """The collected errors, separated by semicolons and without repetitions."""
        return (
            "; ".join(dict.fromkeys(self.lines)) or "it gave no reason (TRTCACHE_LOG=tensorrt shows all its messages)"
        )


class MessageRouter:
    """Route TensorRT's messages to ``logging``, and errors to active collectors too.

    Its warnings are logged at INFO, and what it logs at INFO at DEBUG.
    """

    def __init__(self) -> None:
        """Start without collectors."""
        self._lock = threading.Lock()
        self._listeners: list[ErrorCollector] = []

    def route(self, level: int, message: str) -> None:
        """Handle one message. TensorRT calls this from its own threads.

        An error that is collected becomes an exception, so it is logged at INFO only. Those of a thread that has
        collectors are theirs alone; those of TensorRT's own threads may be anyone's.
        """
        with self._lock:
            own = [one for one in self._listeners if one.thread == threading.get_ident()]
            listeners = own or [*self._listeners]
        is_collected = level >= logging.ERROR and bool(listeners)
        for collector in listeners if is_collected else ():
            collector.add(message)
        try:
            log.log(logging.INFO if is_collected else level, "%s", message)
        except BaseException as error:
            if not listeners:
                raise
            for collector in listeners:
                collector.keep(error)

    @contextmanager
    def collect_errors(self) -> Iterator[ErrorCollector]:
        """Collect the errors that are logged in the block.

        Raises:
            BaseException: the exception that was kept, regardless of the result.
        """
        errors = ErrorCollector()
        with self._lock:
            self._listeners.append(errors)
        try:
            yield errors
        finally:
            with self._lock:
                self._listeners.remove(errors)
            if errors.error is not None:
                raise errors.error


@functools.cache
def get_logger(trt: Any) -> tuple[Any, MessageRouter]:
    """Return the process's logger for a TensorRT module, with its router.

    There is one per process: TensorRT keeps the first logger that it gets, and complains about any other.
    """
    severity = trt.ILogger.Severity
    levels = {
        severity.VERBOSE: logging.DEBUG,
        # TensorRT logs a line of INFO for each of hundreds of steps.
        severity.INFO: logging.DEBUG,
        severity.WARNING: logging.INFO,
        severity.ERROR: logging.ERROR,
        severity.INTERNAL_ERROR: logging.ERROR,
    }
    router = MessageRouter()

    class Logger(trt.ILogger):  # type: ignore[misc]  # a class of an extension module
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            router.route(levels.get(severity, logging.INFO), message)

    logger = Logger()
    trt.init_libnvinfer_plugins(logger, "")  # operators such as NonZero are built-in plugins
    return logger, router
