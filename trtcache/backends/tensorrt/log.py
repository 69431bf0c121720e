"""TensorRT's messages, as Python logging has them."""

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


class Errors:
    """The errors that TensorRT told since ``heard`` was entered, in order."""

    def __init__(self) -> None:
        """Start with none."""
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Note one more; the first few say why."""
        if len(self.lines) < _MOST_ERRORS:
            self.lines.append(line)

    @property
    def text(self) -> str:
        """All of them in one line."""
        return "; ".join(dict.fromkeys(self.lines)) or "it did not say why (TRTCACHE_LOG=tensorrt shows all it says)"


class Ears:
    """Where TensorRT's messages go: to ``logging``, and errors to whoever listens."""

    def __init__(self) -> None:
        """Listen for nobody."""
        self._lock = threading.Lock()
        self._listeners: list[Errors] = []

    def hear(self, level: int, message: str) -> None:
        """Take one message. TensorRT calls this from threads of its own.

        An error that somebody listens to becomes his exception, so it is not printed as well.
        """
        with self._lock:
            heard = level >= logging.ERROR and bool(self._listeners)
            for one in self._listeners if heard else ():
                one.add(message)
        log.log(logging.INFO if heard else level, "%s", message)

    @contextmanager
    def listening(self) -> Iterator[Errors]:
        """Collect the errors that are told meanwhile."""
        errors = Errors()
        with self._lock:
            self._listeners.append(errors)
        try:
            yield errors
        finally:
            with self._lock:
                self._listeners.remove(errors)


@functools.cache
def logger_of(trt: Any) -> tuple[Any, Ears]:
    """Return the one logger for a TensorRT module and where its messages go.

    There is one for each process: TensorRT keeps the first that it is given, and complains about any other.
    """
    severity = trt.ILogger.Severity
    levels = {
        severity.VERBOSE: logging.DEBUG,
        # What TensorRT calls information is a line for each of hundreds of steps.
        severity.INFO: logging.DEBUG,
        severity.WARNING: logging.INFO,
        severity.ERROR: logging.ERROR,
        severity.INTERNAL_ERROR: logging.ERROR,
    }
    ears = Ears()

    class Logger(trt.ILogger):  # type: ignore[misc]  # a class of an extension module
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            ears.hear(levels.get(severity, logging.INFO), message)

    logger = Logger()
    trt.init_libnvinfer_plugins(logger, "")  # operators such as NonZero are plugins of TensorRT's own
    return logger, ears
