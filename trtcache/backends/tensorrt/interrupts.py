"""Ctrl-C while TensorRT runs."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def holding_interrupts() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back until TensorRT has returned, and yield what says whether there was one.

    Python raises it in whatever function runs, and what TensorRT calls may not raise: its logger lost one of two. A
    program's own handler, and threads that get no signals, are left as they are.

    Raises:
        KeyboardInterrupt: there was one, whatever else came of it.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread() or not _is_pythons():
        yield asked.is_set
        return
    signal.signal(signal.SIGINT, lambda *_: asked.set())
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if asked.is_set():
            raise KeyboardInterrupt


def _is_pythons() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
