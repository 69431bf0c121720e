"""The entries of a program's engines: from the cache, or built."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trtcache.backends.members import ENGINE, make_members
from trtcache.compiler.parallel_builds import built_at_once
from trtcache.compiler.request import frozen_request, keyed
from trtcache.compiler.supply import partition, supply
from trtcache.digests import CacheKey
from trtcache.errors import BuildError, BusyError, CanonicalizationError, FrozenWeightsError
from trtcache.runtime import PartitionReport, Report

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.cache import Cache
    from trtcache.compiler.parallel_builds import Elsewhere
    from trtcache.compiler.request import Request
    from trtcache.keys.stored_graph import StoredGraph
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)


def requests_of(request: Request) -> dict[int, Request]:
    """Return the requests for the engines of a program, by the numbers of their parts."""
    if request.division.is_whole:
        return {0: request}
    asked = (request.backend, request.settings, request.target)
    return {
        number: keyed(part.program, *asked, time.perf_counter()) for number, part in request.division.engines.items()
    }


def entries_for(request: Request, cache: Cache, folder: Path, report: Report) -> list[Entry]:
    """Return the entries of all engines of a program, which are not loaded, and note them in the report.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: a build failed.
        BusyError: another process builds one, and the cache is not to wait.
    """
    entries = []
    parts = requests_of(request)
    found = built_at_once(parts, cache, folder, entry_for)
    for number, part in parts.items():
        known = found.get(number)
        if isinstance(known, (BuildError, BusyError)):
            raise known
        entry, why = known or entry_for(part, cache, folder)
        report.partitions.append(partition_of(part, entry, why, 0.0))
        entries.append(entry)
    report.left = request.division.left
    return entries


def entry_for(request: Request, cache: Cache, folder: Path, elsewhere: Elsewhere | None = None) -> tuple[Entry, str]:
    """Return the entry, and if it had to be built why there was none.

    Where the caller left open whether an engine takes other weights and it cannot take all, that is an engine of these
    weights alone: another entry, whose key has their fingerprints. The entry's reason then says which weights and why.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process builds it, and the cache is not to wait.
    """
    if frozen := _frozen_before(request, cache):
        return frozen, ""
    try:
        return _entry_of(request, cache, folder, elsewhere)
    except FrozenWeightsError as error:
        alone = frozen_request(request)
        if alone is None:
            raise
        log.warning("%s is built for these weights alone: %s", request.program.name, error.why)
        entry, why = _entry_of(alone, cache, folder)
        return replace(entry, reason=f"frozen: {error.why}"), why


def _frozen_before(request: Request, cache: Cache) -> Entry | None:
    """Return the entry of these weights alone, if there is one and none that takes others."""
    holder, key = cache.layers.holder, request.key
    if not request.backend.capabilities.bakes_weights or not isinstance(key, CacheKey) or holder(key.digest):
        return None
    alone = frozen_request(request)
    if alone is None or not isinstance(alone.key, CacheKey) or not holder(alone.key.digest):
        return None
    return cache.peek(alone.key)


def _entry_of(request: Request, cache: Cache, folder: Path, elsewhere: Elsewhere | None = None) -> tuple[Entry, str]:
    program = request.program

    def build() -> dict[str, bytes | Path]:
        log.info("building %s for %s", program.name, request.label)
        made = elsewhere(request, folder) if elsewhere else None
        if made is None:
            folder.mkdir(parents=True, exist_ok=True)
            made = request.backend.build(program, request.settings, request.target, folder)
        if isinstance(request.key, CanonicalizationError):
            return {ENGINE: made.engine, **made.members}
        return {**make_members(program, request.records, made.engine), **made.members}

    return supply(
        request.key,
        cache,
        build,
        kind=request.backend.name,
        name=program.name,
        graph=lambda: graph_of(request),
        provenance={"torch": torch.__version__},
    )


def second_choice_for(request: Request, cache: Cache) -> Entry | None:
    """Return an entry for another product of this GPU's capability, where settings allow it and there is no other."""
    key = request.key
    if request.settings.tensorrt.compatible != "capability" or not isinstance(key, CacheKey):
        return None
    if cache.layers.holder(key.digest):
        return None
    from trtcache.keys.second_choice import second_choice

    found = next(filter(None, (second_choice(store, key) for store in cache.layers.stores)), None)
    entry = cache.peek(found.key) if found else None
    if entry is None:
        return None
    log.warning("%s: %s", request.program.name, found)
    return replace(entry, reason=str(found))


def graph_of(request: Request) -> StoredGraph:
    """Return the lowered graph in the form in which entries keep it."""
    from trtcache.keys.graph_digest import graph_document
    from trtcache.keys.stored_graph import StoredGraph

    return StoredGraph.of(graph_document(request.program, request.records))


def report_of(request: Request) -> Report:
    """Return the report on a request, without its engines."""
    program, seconds = request.program, request.program.seconds
    return Report(
        name=program.name,
        backend=request.backend.name,
        target=request.label,
        export_s=seconds["export"],
        decompose_s=seconds["decompose"],
        lower_s=seconds["lower"],
        key_s=request.key_s,
    )


def partition_of(request: Request, entry: Entry, why: str, load_s: float) -> PartitionReport:
    """Return the report on the entry of a request."""
    weights = len(request.program.interface.weights)
    key = entry.key if isinstance(request.key, CacheKey) else request.key
    return partition(key, entry, weights=weights, load_s=load_s, why=why)
