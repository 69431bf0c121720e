"""The way of calls to an engine. It can be closed for the moment in which the memory that the engine reads is written.

A call passes without a lock: it leaves a mark while it is inside, which costs 0.1 us.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from trtcache.errors import RefitStoppedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from trtcache.backends.protocol import Engine

_LOOK_EVERY_S = 2e-4


class _Runner(Protocol):
    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]: ...


class Gate:
    """An engine, and the calls that are running on it.

    Attributes:
        engine: the engine, whether calls are let to it or not.
    """

    def __init__(self, engine: Engine) -> None:
        """Let calls to an engine."""
        self.engine = engine
        self._behind: _Runner = engine
        self._inside: deque[None] = deque()

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the engine, as soon as the gate is open.

        Raises:
            RefitStoppedError: the weights behind it are some of two models'.
        """
        inside = self._inside
        inside.append(None)
        try:
            return self._behind.run(inputs)
        finally:
            inside.pop()

    def close(self, wait_s: float) -> bool:
        """Let no more calls in and wait for those inside; False, and all is as before, if one stays for longer."""
        closed = _Closed(self)
        self._behind = closed
        deadline = time.monotonic() + wait_s
        while self._inside:
            if time.monotonic() > deadline:
                self.open(self.engine)
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    def open(self, engine: Engine) -> None:
        """Let calls to an engine, also those that wait."""
        self.engine = engine
        self._let_to(engine)

    def stop(self, engine: Engine, why: str) -> None:
        """Let no call to an engine that has weights of two models; the next ``open`` lets them in again."""
        self.engine = engine
        self._let_to(_Stopped(why))

    def _let_to(self, behind: _Runner) -> None:
        before, self._behind = self._behind, behind
        if isinstance(before, _Closed):
            before.opened.set()


class _Closed:
    """Where calls wait."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.opened = threading.Event()

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        inside = self._gate._inside
        inside.pop()  # who waits here is not inside
        try:
            self.opened.wait()
            return self._gate.run(inputs)
        finally:
            inside.append(None)


class _Stopped:
    def __init__(self, why: str) -> None:
        self._why = why

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:  # noqa: ARG002  # nothing is run
        raise RefitStoppedError(why=self._why)
