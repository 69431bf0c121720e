"""Entries of a program's engines, from the cache or built, with the reason for a miss."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trtcache.backends.protocol import use_tuning_store
from trtcache.compiler.parallel_builds import build_missing
from trtcache.compiler.progress_line import show_progress_line
from trtcache.digests import CacheKey
from trtcache.errors import BuildError, BuildForbiddenError, BusyError, CanonicalizationError, FrozenWeightsError
from trtcache.runtime.report import BuildDetails, PartitionReport, Report
from trtcache.store.contract import describe_miss

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.cache import Cache
    from trtcache.compiler.parallel_builds import Worker
    from trtcache.frontends.request import EngineRequest
    from trtcache.store.entry import Entry
    from trtcache.store.format import Built

log = logging.getLogger(__name__)


def entries_for(request: EngineRequest, cache: Cache, folder: Path, report: Report) -> dict[int, Entry]:
    """Get or build the entries of a program's engines, by partition, without loading them; add them to the report.

    An entry that cannot be stored has the files of its build, each in a folder of its own in ``folder``.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: a build failed.
        BusyError: another process builds one, and the cache does not wait.
    """
    entries: dict[int, Entry] = {}
    partitions = request.partitions
    built = build_missing(partitions, cache, folder)
    for number, partition in partitions.items():
        outcome = built.get(number)
        if isinstance(outcome, (BuildError, BusyError)):
            raise outcome
        own = folder / str(number) if len(partitions) > 1 else folder
        entry, details = outcome or entry_for(partition, cache, own)
        weights = len(partition.program.interface.weights)
        report.partitions.append(PartitionReport.of(entry, key=partition.key, weights=weights, details=details))
        entries[number] = entry
    report.left = request.division.left
    return entries


def entry_for(
    request: EngineRequest, cache: Cache, folder: Path, worker: Worker | None = None
) -> tuple[Entry, BuildDetails]:
    """Get or build the entry of one engine; also return the details of its build, empty for a hit.

    A stored engine can be for other sizes than the example's: Inductor specialises on some sizes, although they are
    dynamic. Then the engine's entry has another key, with these sizes.

    If the settings do not decide whether an engine is refittable, and some of its weights cannot be refitted, the
    engine is built for these weights alone. Its entry has another key, with the fingerprints of the weights; after a
    build its reason starts with ``frozen:``.

    Args:
        request: the request for the engine.
        cache: the cache to search.
        folder: a temporary folder for the build.
        worker: builds in another process.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process builds it, and the cache does not wait.
    """
    wanted: EngineRequest | None = request
    while wanted is not None:
        request = wanted
        entry, details = _any_entry_for(request, cache, folder, worker)
        wanted = request.for_example(entry) if entry.outcome != "built" else None
        if wanted is not None:
            log.info("%s: the engine of %s is for other sizes than the example's", request.program.name, request.key)
    return entry, details


def _any_entry_for(
    request: EngineRequest, cache: Cache, folder: Path, worker: Worker | None
) -> tuple[Entry, BuildDetails]:
    """Get or build an entry, which can be for other sizes than the example's if it was stored."""
    holder = cache.layers.holder
    if request.backend.capabilities.bakes_weights and isinstance(request.key, CacheKey):
        # Case 1: only an engine for these weights alone is stored here, or in a remote.
        frozen_request = None if holder(request.key.digest) else request.freeze()
        key = frozen_request.key if frozen_request is not None else None
        if isinstance(key, CacheKey) and (holder(key.digest) or cache.config.remotes.urls):
            entry = cache.peek(key)
            if entry is not None:
                return entry, BuildDetails()
    try:
        # Case 2: an entry that takes any weights, stored or built now.
        return _fetch_entry(request, cache, folder, worker)
    except FrozenWeightsError as error:
        # Case 3: the builder cannot build a refittable engine.
        frozen_request = request.freeze()
        if frozen_request is None:
            raise
        log.warning("%s is built for these weights alone: %s", request.program.name, error.why)
        entry, details = _fetch_entry(frozen_request, cache, folder, worker)
        return replace(entry, reason=f"frozen: {error.why}"), details


def _fetch_entry(
    request: EngineRequest, cache: Cache, folder: Path, worker: Worker | None
) -> tuple[Entry, BuildDetails]:
    name, details = request.program.name, BuildDetails()

    def build() -> Built:
        nonlocal details
        why = _explain_miss(request, cache)
        log.info("building %s for %s", name, request.label)
        line = show_progress_line(cache, kind=request.backend.name, name=name, device=request.program.device.type)
        with line, use_tuning_store(cache):
            artifact = worker(request, folder) if worker else None
            if artifact is None:
                folder.mkdir(parents=True, exist_ok=True)
                artifact = request.build(folder)
            details = BuildDetails(why, artifact.steps)
            return request.members(artifact)

    if isinstance(request.key, CanonicalizationError):
        log.warning("%s is not cached: %s", name, request.key)
        return cache.build_uncached(build, kind=request.backend.name, why=str(request.key), name=name), details
    try:
        entry = cache.fetch(request.key, build, name=name, provenance={"torch": torch.__version__})
    except BuildForbiddenError as error:
        error.why = error.why or _explain_miss(request, cache)
        raise
    if entry.outcome == "built" and (damage := describe_miss(entry.reason or "")):
        details = replace(details, why=damage)  # the nearest of the other entries is not the reason
    return entry, details


def _explain_miss(request: EngineRequest, cache: Cache) -> str:
    """Return and log how the nearest stored entry differs; empty if the entry is stored, or the cache has no store."""
    stores, key = cache.layers.disks, request.key
    if not stores or not isinstance(key, CacheKey) or cache.layers.holder(key.digest):
        return ""
    from trtcache.keys.nearest import nearest  # imports SQLite and difflib, which a hit does not need

    try:
        graph = request.graph()
        candidates = [nearest(store, key.document, name=request.program.name, graph=graph) for store in stores]
        found = min(filter(None, candidates), key=lambda one: len(one.differences), default=None)
    except Exception:  # only a diagnostic: the build goes on whatever the store contains
        log.debug("finding the nearest entry failed", exc_info=True)
        return ""
    why = str(found) if found else f"no similar {key.kind} entry"
    log.info("miss: %s", why)
    return why


def similar_gpu_entry_for(request: EngineRequest, cache: Cache) -> Entry | None:
    """Return an entry for another GPU of the same compute capability, if allowed and no exact entry is stored."""
    key = request.key
    if not request.backend.takes_similar(request.settings) or not isinstance(key, CacheKey):
        return None
    if cache.layers.holder(key.digest):
        return None
    from trtcache.keys.nearest import find_similar_gpu

    found = next(filter(None, (find_similar_gpu(store, key) for store in cache.layers.disks)), None)
    entry = cache.peek(found.key) if found else None
    if entry is None or request.for_example(entry) is not None:
        return None
    log.warning("%s: %s", request.program.name, found)
    return replace(entry, reason=str(found))


def report_request(request: EngineRequest) -> Report:
    """Create the report on a request, without its engines."""
    seconds = request.program.seconds
    return Report(
        name=request.program.name,
        backend=request.backend.name,
        target=request.label,
        export_s=seconds["export"],
        decompose_s=seconds["decompose"],
        lower_s=seconds["lower"],
        key_s=request.key_s,
        route=request.route,
    )
