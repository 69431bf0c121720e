"""What signal handlers and callbacks raise while TensorRT builds: raised when it has returned, and never lost."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import trtcache
from tests.backends.tensorrt.plans import Small, compiled, ids
from trtcache.backends.tensorrt.callbacks import ErrorCollector, MessageRouter, defer_exceptions_of_handlers
from trtcache.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def handled(number: int, handler: Callable[..., object]) -> Iterator[None]:
    """Handle a signal, and check that its handler is in place in the end."""
    before = signal.signal(number, handler)
    try:
        yield
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def ended(*_: object) -> None:
    """End the program, as a server's handler of SIGTERM does."""
    raise SystemExit(7)


class Noted(logging.Handler):
    """Calls a function with the first message of TensorRT's."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self.function, self.calls = function, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.calls += 1
        if self.calls == 1:
            self.function()


@contextmanager
def noted(function: Callable[[], object]) -> Iterator[Noted]:
    """Call a function with the first message of TensorRT's in the block."""
    log, handler = logging.getLogger("trtcache.backends.tensorrt"), Noted(function)
    level = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def test_a_handler_that_ends_the_program_does_so_during_a_build(tmp_path: Path) -> None:
    """The signal arrives in TensorRT's own code, and Python handles it at the start of the next callback."""
    started = threading.Event()

    def kill() -> None:
        started.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    with handled(signal.SIGTERM, ended):
        with trtcache.watching(lambda _: started.set()), pytest.raises(SystemExit, match="7"):
            compiled(Small(), (ids(),), tmp_path)
        killer.join()
    assert not list(tmp_path.glob("entries/*/*"))


def test_a_handler_that_raises_in_the_log_ends_the_build(tmp_path: Path) -> None:
    """TensorRT's bindings would print and ignore it."""
    noting = noted(lambda: signal.raise_signal(signal.SIGTERM))
    with handled(signal.SIGTERM, ended), noting as log, pytest.raises(SystemExit, match="7"):
        compiled(Small(), (ids(),), tmp_path)
    assert log.calls
    assert not list(tmp_path.glob("entries/*/*"))


def test_an_exception_of_the_log_ends_the_build(tmp_path: Path) -> None:
    """A handler of ``logging`` may raise, and the next build is not disturbed."""

    def broken() -> None:
        raise RuntimeError("no log")

    model = Small()
    with noted(broken), pytest.raises(BuildError, match="RuntimeError: no log"):
        compiled(model, (ids(),), tmp_path)
    assert not list(tmp_path.glob("entries/*/*"))
    assert compiled(model, (ids(),), tmp_path).report.partitions[0].outcome == "built"


def test_a_handler_that_raises_nothing_changes_nothing(tmp_path: Path) -> None:
    """It is called at once, and the plan is built."""
    calls: list[tuple[object, ...]] = []
    noting = noted(lambda: signal.raise_signal(signal.SIGTERM))
    with handled(signal.SIGTERM, lambda *given: calls.append(given)), noting:
        assert compiled(Small(), (ids(),), tmp_path).report.partitions[0].outcome == "built"
    assert [one[0] for one in calls] == [signal.SIGTERM]


def test_a_handler_that_is_set_meanwhile_stays() -> None:
    """Handlers that the program sets in a handler of its own are its own."""

    def second(*_: object) -> None:
        """Do nothing."""

    def first(*_: object) -> None:
        signal.signal(signal.SIGTERM, second)

    before = signal.signal(signal.SIGTERM, first)
    try:
        with defer_exceptions_of_handlers(ErrorCollector()):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is second
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_first_exception_is_raised_and_an_interrupt_before_any_error() -> None:
    """The collector raises it at the end of its block, also if another one is on its way."""

    def collected(*found: BaseException) -> None:
        with MessageRouter().collect_errors() as errors:
            for one in found:
                errors.keep(one)
            raise BuildError("tensorrt_rtx", "it was cancelled")

    with pytest.raises(ValueError, match="first"):
        collected(ValueError("first"), ValueError("second"))
    with pytest.raises(KeyboardInterrupt):
        collected(ValueError("first"), KeyboardInterrupt(), SystemExit(7))
