"""Circuit breaker of a remote, in a small file that all processes of this user on this host share.

After a failure, no request is sent for 30 s, then for twice as long, up to 10 minutes. When the time is over, one
request is let through; its success closes the breaker. The file has no effect on answers: a damaged one counts as none.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from trtcache.config.environment import make_folders
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST_S: Final = 30.0
LONGEST_S: Final = 600.0
IN_A_ROW: Final = 3
"""Failures in a row that open it, where one alone may be an accident: a refused request, a slow or wrong answer."""

_PROBE_S = 10.0
_MOST_BYTES = 4096


@frozen_dataclass
class BreakerState:
    """``until_s`` is the time (since 1970) up to which nothing is asked, 0 while it is closed."""

    until_s: float = 0.0
    wait_s: float = 0.0
    failures: int = 0
    why: str = ""


class Breaker:
    """The breaker kept in the file ``path``, or in memory where that cannot be written."""

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.time) -> None:
        self._path, self._clock_s = path, clock_s
        self._state = BreakerState()
        self._in_memory = False

    def read(self) -> BreakerState:
        """Return the current state."""
        if not self._in_memory:
            self._state = self._load()
        return self._state

    def admits(self) -> bool:
        """Return whether a request may be sent: the breaker is closed, or this is the one request that tries again."""
        state, now_s = self.read(), self._clock_s()
        if not state.until_s:
            return True
        if now_s < state.until_s <= now_s + LONGEST_S:  # or the clock was set back
            return False
        # Half-open: other processes wait until this request is answered.
        self._store(BreakerState(now_s + _PROBE_S, state.wait_s, state.failures, state.why))
        return True

    def note_success(self) -> None:
        """Close it."""
        if self._state == BreakerState():
            return
        self._state = BreakerState()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def note_failure(self, why: str, *, at_once: bool) -> float:
        """Count a failure, and open it ``at_once`` or after three in a row; return for how many seconds, or 0."""
        state = self.read()
        failures, wait_s, until_s = state.failures + 1, state.wait_s, 0.0
        opens = at_once or failures >= IN_A_ROW or bool(state.until_s)
        if opens:
            wait_s = min(LONGEST_S, wait_s * 2) if wait_s else FIRST_S
            until_s = self._clock_s() + wait_s
        self._store(BreakerState(until_s, wait_s, failures, why[:300]))
        return wait_s if opens else 0.0

    def _load(self) -> BreakerState:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return BreakerState()
        try:
            document: Any = json.loads(os.read(fd, _MOST_BYTES))
            until_s, wait_s = float(document["until_s"]), float(document["wait_s"])
            if not (0 <= until_s <= self._clock_s() + LONGEST_S and 0 <= wait_s <= LONGEST_S):
                return BreakerState()  # the clock was set back, or the file is damaged
            return BreakerState(until_s, wait_s, int(document["failures"]), str(document["why"]))
        except (ArithmeticError, KeyError, OSError, RecursionError, TypeError, ValueError):
            return BreakerState()
        finally:
            os.close(fd)

    def _store(self, state: BreakerState) -> None:
        self._state = state
        try:
            make_folders(self._path.parent)
            with atomic_write(self._path) as temporary:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                with os.fdopen(fd, "w") as file:
                    json.dump(asdict(state), file)
        except OSError:
            self._in_memory = True
