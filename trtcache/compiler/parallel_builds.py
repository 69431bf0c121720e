"""Concurrent builds of those partitions of a program that are not in the cache."""

from __future__ import annotations

import logging
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeAlias

from trtcache.config.threads import cores
from trtcache.digests import CacheKey
from trtcache.errors import BuildError, BusyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trtcache.backends.protocol import Artifact
    from trtcache.cache import Cache
    from trtcache.frontends.request import EngineRequest
    from trtcache.runtime.report import BuildDetails
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)

Worker: TypeAlias = "Callable[[EngineRequest, Path], Artifact | None]"
"""Builds in another process; returns None if only this process can."""


def build_missing(
    parts: Mapping[int, EngineRequest], cache: Cache, folder: Path
) -> dict[int, tuple[Entry, BuildDetails] | BuildError | BusyError]:
    """Build missing partitions in several processes; return outcomes by partition number, empty if one is enough.

    This process builds as well; the other processes end with this call, even if it fails. Equal partitions are built
    once. Partitions that only this process can build are left out.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
    """
    missing = _missing(parts, cache)
    wanted = next((part.settings.build_processes for part in parts.values()), None)
    processes = min(wanted or cores(), len(missing))
    if processes < 2:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    from trtcache.compiler.build_pool import Pool
    from trtcache.compiler.entries import entry_for  # it imports this module

    log.info("building %d parts in %d processes", len(missing), processes)
    waiting = deque(numbers[0] for numbers in missing.values())
    found: dict[int, tuple[Entry, BuildDetails] | BuildError | BusyError] = {}

    def work(worker: Worker | None) -> None:
        while waiting:
            try:
                number = waiting.popleft()
            except IndexError:  # another thread has taken the last one
                return
            try:
                found[number] = entry_for(parts[number], cache, folder / str(number), worker)
            except (BuildError, BusyError) as error:
                found[number] = error

    # This process builds as well: torch and Inductor, six seconds of imports, are here already.
    others, share = processes - 1, max(1, cores() // processes)
    with ThreadPoolExecutor(others) as threads, Pool(share) as pool:  # the pool ends first, which unblocks the threads
        futures = [threads.submit(copy_context().run, work, pool.build) for _ in range(others)]
        try:
            work(None)
            for future in futures:
                future.result()
        finally:
            waiting.clear()
    return found


def _missing(parts: Mapping[int, EngineRequest], cache: Cache) -> dict[str, list[int]]:
    """Return the partitions without an entry that another process can build, by the digests of their keys."""
    missing: dict[str, list[int]] = {}
    for number, part in parts.items():
        if not part.backend.capabilities.builds_elsewhere or not isinstance(part.key, CacheKey):
            continue
        if part.backend.bakes_weights(part.settings):
            continue  # another process has no values of weights
        if cache.store is None or not cache.store.contains(part.key.digest):
            missing.setdefault(part.key.digest, []).append(number)
    return missing
