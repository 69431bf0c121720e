"""Logging of TensorRT's messages."""

from __future__ import annotations

import functools
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("trtcache.tensorrt")

_MOST_ERRORS = 20


class ErrorCollector:
    """The errors that TensorRT has logged since collection started, in order."""

    def __init__(self) -> None:
        """Start with none."""
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Add an error; only the first few are kept."""
        if len(self.lines) < _MOST_ERRORS:
            self.lines.append(line)

    @property
    def text(self) -> str:
        """All errors in one line."""
        return (
            "; ".join(dict.fromkeys(self.lines)) or "it gave no reason (TRTCACHE_LOG=tensorrt shows all its messages)"
        )


class MessageRouter:
    """Route TensorRT's messages to ``logging``, and errors to active collectors too."""

    def __init__(self) -> None:
        """Start without collectors."""
        self._lock = threading.Lock()
        self._listeners: list[ErrorCollector] = []

    def route(self, level: int, message: str) -> None:
        """Handle one message. TensorRT calls this from its own threads.

        An error that is collected becomes an exception, so it is logged at INFO only.
        """
        with self._lock:
            is_collected = level >= logging.ERROR and bool(self._listeners)
            for collector in self._listeners if is_collected else ():
                collector.add(message)
        log.log(logging.INFO if is_collected else level, "%s", message)

    @contextmanager
    def collect_errors(self) -> Iterator[ErrorCollector]:
        """Collect the errors that are logged in the block."""
        errors = ErrorCollector()
        with self._lock:
            self._listeners.append(errors)
        try:
            yield errors
        finally:
            with self._lock:
                self._listeners.remove(errors)


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
