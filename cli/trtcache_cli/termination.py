"""End a command and what it has started: on a signal, or when its parent process ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
"""What ``timeout``, a CI system and a scheduler send, and a terminal that is closed."""

GRACE_S: Final = 10.0
"""How long a process may take to end after an interrupt: C code that runs in it does not notice it."""

_STANDARD_INPUT = 0


class Terminated(KeyboardInterrupt):
    """A signal has ended the command; it is handled as Ctrl-C is.

    Attributes:
        exit_code: that of a process that the signal has killed, in a shell.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def raise_terminated() -> Iterator[None]:
    """Raise ``Terminated`` in the block for the first signal that would kill this process, and ignore the next ones.

    Signals that are ignored, as after ``nohup``, stay so.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in SIGNALS}
        before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@cache
def open_input() -> int:
    """Return the end of a pipe to read from, whose other end is closed when this process ends, however that is."""
    # Other programs that this process starts do not inherit the end to write to.
    read_end, _ = os.pipe()
    return read_end


def end_with_input() -> None:
    """Interrupt this process when standard input is closed, and kill it if it does not end soon."""

    def watch() -> None:
        while os.read(_STANDARD_INPUT, 1):
            pass
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(GRACE_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="trtcache-input", daemon=True).start()
