"""Builds the parts of a program that are not in the cache at once."""

from __future__ import annotations

import logging
from contextvars import copy_context
from typing import TYPE_CHECKING, Protocol, TypeAlias

from trtcache.errors import BuildError, BusyError
from trtcache.thread_counts import cores
from trtcache.values import CacheKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trtcache.backends.protocol import Artifact
    from trtcache.cache import Cache
    from trtcache.request import Request
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)

Elsewhere: TypeAlias = "Callable[[Request, Path], Artifact | None]"
"""Builds in another process; None where only this one can."""


class EntryFor(Protocol):
    """Gets the entry of a request, or has it built in a folder."""

    def __call__(self, request: Request, cache: Cache, folder: Path, elsewhere: Elsewhere) -> tuple[Entry, str]:
        """Return the entry, and if it had to be built why there was none."""
        ...


def built_at_once(
    parts: Mapping[int, Request], cache: Cache, folder: Path, entry_for: EntryFor
) -> dict[int, tuple[Entry, str] | BuildError | BusyError]:
    """Return what came of building what is missing, by the parts' numbers; nothing where one process is enough.

    Each is built in a process of its own, which ends with this call, whatever becomes of it. Equal parts are built
    once, and what only this process can build is not among them.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
    """
    missing = _missing(parts, cache)
    wanted = next((part.settings.build_processes for part in parts.values()), None)
    processes = min(wanted or cores(), len(missing))
    if processes < 2:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    from trtcache.building.pool import Pool

    log.info("building %d parts in %d processes", len(missing), processes)
    with ThreadPoolExecutor(processes) as threads, Pool(processes, cores()) as pool:  # whose end lets threads end

        def entry(number: int) -> tuple[Entry, str] | BuildError | BusyError:
            try:
                return entry_for(parts[number], cache, folder / str(number), pool.build)
            except (BuildError, BusyError) as error:
                return error

        started = {numbers[0]: threads.submit(copy_context().run, entry, numbers[0]) for numbers in missing.values()}
        try:
            return {number: one.result() for number, one in started.items()}
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _missing(parts: Mapping[int, Request], cache: Cache) -> dict[str, list[int]]:
    """Return the parts that have no entry and that another process can build, by the digests of their keys."""
    missing: dict[str, list[int]] = {}
    for number, part in parts.items():
        elsewhere = part.backend.capabilities.builds_elsewhere and isinstance(part.key, CacheKey)
        if elsewhere and not _is_there(part, cache):
            missing.setdefault(str(getattr(part.key, "digest", "")), []).append(number)
    return missing


def _is_there(part: Request, cache: Cache) -> bool:
    return cache.store is not None and isinstance(part.key, CacheKey) and cache.store.path(part.key.digest).exists()
