"""What torch says while it exports a graph, kept from the terminal.

Where it cannot follow a graph it prints all of it on standard error, and warns of symbols that it cannot place
(torch/export/_trace.py, torch/fx/experimental/symbolic_shapes.py). The graph is one of Dynamo's, no code of the user's,
and a way on is found: another export, or eager torch with one warning that has the reason.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

_SPEAKERS = ("torch.export._trace", "torch.fx.experimental.symbolic_shapes")


class _Aside(io.TextIOBase):
    """Keeps what one thread writes, and hands on what others do."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self._thread = stream, threading.get_ident()
        self.kept: list[str] = []

    def is_mine(self) -> bool:
        return threading.get_ident() == self._thread

    def write(self, text: str) -> int:
        if self.is_mine():
            self.kept.append(text)
        elif self._stream is not None:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep a record of this thread as a line, and let others through."""
        if self.is_mine():
            self.kept.append(f"{record.getMessage()}\n")
        return not self.is_mine()


@contextmanager
def remarks_aside(log: logging.Logger) -> Iterator[None]:
    """Let torch's remarks of this thread go to a log at DEBUG instead of to standard error."""
    aside = _Aside(sys.stderr)
    loggers = [logging.getLogger(name) for name in _SPEAKERS]
    for logger in loggers:
        logger.addFilter(aside.filter)
    try:
        with redirect_stderr(aside):
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(aside.filter)
        if said := "".join(aside.kept).strip():
            log.debug("torch said: %s", said)
