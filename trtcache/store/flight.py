"""Single flight: of all threads and processes that want to build one key, one builds and the others wait.

The lock is the kernel's, on a file that is never removed. It ends with its holder, however that ends, so a waiter
behind a killed leader becomes the leader.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from trtcache.errors import LockTimeoutError
from trtcache.store.mutex import hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_logger = logging.getLogger("trtcache.store")

NOTICE_EVERY_S = 10.0


@contextmanager
def flight(
    path: Path,
    key: str,
    *,
    timeout_s: float | None = None,
    notice_every_s: float = NOTICE_EVERY_S,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Hold the lock file ``path`` while the body runs; ``key`` is for the log. Not reentrant.

    Raises:
        LockTimeoutError: another held it for ``timeout_s`` seconds.
        OSError: the lock file cannot be made, or the file system has no locks.
    """
    began_s, step_s = clock_s(), 0.0
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(hold(path, timeout_s=step_s))
                break
            except LockTimeoutError as error:
                waited_s = clock_s() - began_s
                if timeout_s is not None and waited_s >= timeout_s:
                    raise LockTimeoutError(str(path), waited_s) from error
            _logger.info("waiting for another process that builds %s, %.0f s", key[:16], waited_s)
            step_s = notice_every_s if timeout_s is None else min(notice_every_s, timeout_s - waited_s)
        yield
