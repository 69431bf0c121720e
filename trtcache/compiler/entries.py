"""The slow path: get or build the entries of a lowered program's engines, and load them. Read ``build_and_load`` first.

``build_and_load`` makes a module; ``get_or_build_entries`` loads nothing, for ``trtcache build``. Both get each entry
from ``get_or_build_entry``, after ``build_missing`` has built several partitions at once.

For a program that is one engine, each of these functions calls the next:

1. ``build_and_load``: the compiled module;
2. ``_load_whole``: a program whose engine cannot be built may run in torch instead;
3. ``_get_and_load``: an entry that cannot be loaded is built again;
4. ``get_or_build_entry``: an engine can be for the sizes of other examples;
5. ``_get_or_build_for_weights``: an engine can have the values of these weights in it;
6. ``_get_or_build_with_key``: ``Cache.get_or_build_key`` looks in the stores and remotes, or calls ``Request.build``.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import torch

from trtcache.backends.protocol import Artifact, Engine, use_tuning_store
from trtcache.backends.registry import load_engine
from trtcache.compiler.progress_line import show_progress_line
from trtcache.config.threads import cores
from trtcache.digests import CacheKey, Json, canonical
from trtcache.errors import (
    BuildError,
    BuildForbiddenError,
    BusyError,
    CanonicalizationError,
    FrozenWeightsError,
    IncompatibleEngineError,
)
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.executable import Executable, Provenance, load_members, parameters_of
from trtcache.runtime.executor import ExecutionPlan, PartitionedEngine, weights_of
from trtcache.runtime.module_call import CallSignature
from trtcache.runtime.parallel import InterOp
from trtcache.runtime.report import BuildDetails
from trtcache.store.contract import Entry, describe_miss

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.frontends.request import Request
    from trtcache.frontends.source import Source
    from trtcache.partition.division import PartitionedProgram
    from trtcache.store.format import Built

log = logging.getLogger(__name__)

LoadedEngine: TypeAlias = "tuple[Engine, PartitionedProgram, dict[int, Entry]]"
"""An engine, its final partitions, and the entries of those that are engines."""

Worker: TypeAlias = "Callable[[Request, Path], Artifact | None]"
"""Builds in another process; returns None if only this process can."""


def build_and_load(request: Request, source: Source, cache: Cache) -> CompiledModule:
    """Get or build the engines of a lowered program, load them, and return the compiled module.

    An engine has the request's key, but for two cases: one for a similar GPU, if the settings allow it, and one with
    the values of these weights in it, if the backend could not build it without.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process builds it, the cache does not wait, and the settings leave no part to torch.
    """
    report, weights, program = new_report(request), request.engine_weights(), request.program
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        load = _load_whole if request.division.is_one_engine else _load_partitions
        engine, division, entries = load(request, cache, Path(folder), weights, report)
        origin = provenance_of(request, division, entries) if request.is_torch else None
    call = CallSignature(program.in_spec, program.out_spec, source.forward, request.input_names)
    module = CompiledModule(Executable.of(program), engine, weights if request.is_torch else {}, call)
    module.weight_file = request.weight_file()
    module.report, module.origin = report, origin
    report.guards = module.guards
    source.release()
    return module


def provenance_of(request: Request, division: PartitionedProgram, entries: Mapping[int, Entry]) -> Provenance:
    """Return what exporting a module of these entries needs; all members are read into memory."""
    return Provenance(
        backend=request.backend.name,
        target=cast("Mapping[str, Json]", canonical(request.target.document())),
        label=request.target.label,
        toolchain=cast("Mapping[str, Json]", canonical(request.backend.versions(request.program.device.type))),
        entries={number: load_members(entry) for number, entry in entries.items()},
        division=division,
        parameters=parameters_of(request.program.state),
        settings=request.settings,
        example_sizes=request.program.example_sizes,
    )


def _load_whole(
    request: Request, cache: Cache, folder: Path, weights: Mapping[str, torch.Tensor], report: Report
) -> LoadedEngine:
    """Load the engine of a program that is a single partition."""
    try:
        engine, partition_report, entry = _get_and_load(request, cache, folder, weights)
    except (BuildError, IncompatibleEngineError) as error:  # the latter of an engine that was just built
        if not _accept_build_failure(request, error):
            raise
        why = f"its engine could not be built: {error}"
    except BusyError as error:
        why = _report_busy(request, error, report)
    else:
        report.partitions.append(partition_report)
        return engine, request.division, {0: entry}
    from trtcache.partition.partitioner import keep_in_torch

    division = keep_in_torch(request.program, why)
    return _load_partitions(replace(request, division=division), cache, folder, weights, report)


def _load_partitions(
    request: Request, cache: Cache, folder: Path, weights: Mapping[str, torch.Tensor], report: Report
) -> LoadedEngine:
    """Load the engines of a program's partitions. One that cannot be built stays in torch, if the settings allow it."""
    division, program = request.division, request.program
    engines: dict[int, Engine] = {}
    entries: dict[int, Entry] = {}
    failed: dict[int, str] = {}
    partitions = request.partitions
    start = time.perf_counter()
    built = build_missing(partitions, cache, folder)
    done = [outcome[0] for outcome in built.values() if isinstance(outcome, tuple)]
    build_s = sum(entry.build_s for entry in done if entry.outcome == "built")
    report.overlapped_s = max(0.0, build_s - (time.perf_counter() - start))
    for number, partition_request in partitions.items():
        own = weights_of(division, number, weights)
        try:
            engines[number], partition_report, entries[number] = _get_and_load(
                partition_request, cache, folder / str(number), own, built.get(number)
            )
        except (BuildError, IncompatibleEngineError) as error:
            if not _accept_build_failure(request, error):
                raise
            failed[number] = f"its engine could not be built: {error}"
        except BusyError as error:
            failed[number] = _report_busy(partition_request, error, report)
        else:
            report.partitions.append(partition_report)
    if failed:
        from trtcache.partition.partitioner import move_to_torch  # imports sympy

        division = move_to_torch(division, program, failed)
    report.left = division.left
    plan, inter_op = ExecutionPlan(division, program.interface, program.device), InterOp(request.settings.threads)
    return PartitionedEngine(plan, engines, weights, program.constants, inter_op), division, entries


def _accept_build_failure(request: Request, error: BuildError | IncompatibleEngineError) -> bool:
    """Return whether the settings let what could not be built, or loaded once it was, stay in torch; log it."""
    settings = request.settings
    if settings.on_build_failure != "torch" or settings.require_full_compilation:
        return False
    log.warning("%s: a part of it stays in torch, since its engine could not be built: %s", request.program.name, error)
    return True


def _report_busy(request: Request, error: BusyError, report: Report) -> str:
    """Report that an engine's partition runs in torch this time, and return why.

    Raises:
        BusyError: the settings allow engines only, or torch cannot run the program.
    """
    if request.settings.require_full_compilation or not request.is_torch:
        raise error
    why = f"{error.builder or 'another process'} is building its engine"
    log.warning("%s runs in torch in this process, without an engine: %s", request.program.name, why)
    key, weights = request.key if isinstance(request.key, CacheKey) else None, len(request.program.interface.weights)
    report.partitions.append(PartitionReport(key, "eager", "busy", weights, error.waited_s, 0.0, 0.0, None, why))
    return why


def _get_and_load(
    request: Request,
    cache: Cache,
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    built: tuple[Entry, BuildDetails] | BuildError | BusyError | None = None,
) -> tuple[Engine, PartitionReport, Entry]:
    """Load an engine from the cache, building it if necessary; return it with its report and its entry.

    Args:
        request: the request for the engine.
        cache: the cache of its entry.
        folder: a temporary folder for the build.
        weights: the weights, keyed by engine weight name.
        built: the outcome of its build in ``build_missing``; None if it was not built there.
    """
    if isinstance(built, (BuildError, BusyError)):
        raise built

    def load_entry(entry: Entry) -> Engine:
        constants, device = request.program.constants, request.program.device
        with use_tuning_store(cache):
            return load_engine(request.backend, entry, device=device, constants=constants, weights=weights)

    fallback = _find_similar_gpu_entry(request, cache)
    if built is not None:
        entry, details = built
    elif fallback is not None:
        entry, details = fallback, BuildDetails()
    else:
        entry, details = get_or_build_entry(request, cache, folder)
    entry = load_members(entry)  # the module and its engine share the same bytes
    start = time.perf_counter()
    try:
        engine = load_entry(entry)
    except IncompatibleEngineError as error:
        if entry.outcome == "built":
            raise
        what = "is built again" if fallback is None else "was built for a similar GPU: building for this GPU"
        log.warning("the entry %s cannot be loaded and %s: %s", entry.key.digest[:16], what, error)
        # An engine for another GPU product may fail to load here without being damaged.
        with cache.replacing(entry, "load") if fallback is None else nullcontext():
            entry, details = get_or_build_entry(request, cache, folder)
            entry = load_members(entry)
            start = time.perf_counter()
            engine = load_entry(entry)
    load_s, count = time.perf_counter() - start, len(request.program.interface.weights)
    return engine, PartitionReport.of(entry, key=request.key, weights=count, details=details, load_s=load_s), entry


def get_or_build_entries(request: Request, cache: Cache, folder: Path, report: Report) -> dict[int, Entry]:
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
        entry, details = outcome or get_or_build_entry(partition, cache, own)
        weights = len(partition.program.interface.weights)
        report.partitions.append(PartitionReport.of(entry, key=partition.key, weights=weights, details=details))
        entries[number] = entry
    report.left = request.division.left
    return entries


def get_or_build_entry(
    request: Request, cache: Cache, folder: Path, worker: Worker | None = None
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
    while True:
        entry, details = _get_or_build_for_weights(request, cache, folder, worker)
        for_example = request.for_example(entry) if entry.outcome != "built" else None
        if for_example is None:
            return entry, details
        log.info("%s: the engine of %s is for other sizes than the example's", request.program.name, request.key)
        request = for_example


def _get_or_build_for_weights(
    request: Request, cache: Cache, folder: Path, worker: Worker | None
) -> tuple[Entry, BuildDetails]:
    """Get or build an entry. A stored one may have been built for other sizes than the example's."""
    if request.backend.capabilities.can_freeze and isinstance(request.key, CacheKey):
        # Case 1: only an engine for these weights alone is stored here, or in a remote.
        frozen_request = None if request.key in cache else request.freeze()
        key = frozen_request.key if frozen_request is not None else None
        if isinstance(key, CacheKey) and (key in cache or cache.config.remotes.urls):
            entry = cache.peek(key)
            if entry is not None:
                return entry, BuildDetails()
    try:
        # Case 2: an entry that takes any weights, stored or built now.
        return _get_or_build_with_key(request, cache, folder, worker)
    except FrozenWeightsError as error:
        # Case 3: the builder cannot build a refittable engine.
        frozen_request = request.freeze()
        if frozen_request is None:
            raise
        log.warning("%s is built for these weights alone: %s", request.program.name, error.why)
        entry, details = _get_or_build_with_key(frozen_request, cache, folder, worker)
        return replace(entry, reason=f"frozen: {error.why}"), details


def _get_or_build_with_key(
    request: Request, cache: Cache, folder: Path, worker: Worker | None
) -> tuple[Entry, BuildDetails]:
    name, details = request.program.name, BuildDetails()

    def build() -> Built:
        nonlocal details
        why = _explain_miss(request, cache)
        log.info("building %s for %s", name, request.target.label)
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
        entry = cache.get_or_build_key(request.key, build, name=name, provenance={"torch": torch.__version__})
    except BuildForbiddenError as error:
        error.why = error.why or _explain_miss(request, cache)
        raise
    if entry.outcome == "built" and (damage := describe_miss(entry.reason or "")):
        details = replace(details, why=damage)  # the nearest of the other entries is not the reason
    return entry, details


def _explain_miss(request: Request, cache: Cache) -> str:
    """Return and log how the nearest stored entry differs; empty if the entry is stored, or the cache has no store."""
    stores, key = cache.layers.disks, request.key
    if not stores or not isinstance(key, CacheKey) or key in cache:
        return ""
    from trtcache.keys.explain import nearest_of  # imports SQLite and difflib, which a hit does not need

    try:
        graph = request.graph()
        found = nearest_of(stores, key.document, name=request.program.name, graph=graph)
    except Exception:  # only a diagnostic: the build goes on whatever the store contains
        log.debug("finding the nearest entry failed", exc_info=True)
        return ""
    why = str(found) if found else f"no similar {key.kind} entry"
    log.info("miss: %s", why)
    return why


def _find_similar_gpu_entry(request: Request, cache: Cache) -> Entry | None:
    """Return an entry for another GPU of the same compute capability, if allowed and no exact entry is stored."""
    key = request.key
    if not request.backend.takes_similar(request.settings) or not isinstance(key, CacheKey):
        return None
    if key in cache:
        return None
    from trtcache.keys.explain import find_similar_gpu

    found = next(filter(None, (find_similar_gpu(store, key) for store in cache.layers.disks)), None)
    entry = cache.peek(found.key) if found else None
    if entry is None or request.for_example(entry) is not None:
        return None
    log.warning("%s: %s", request.program.name, found)
    return replace(entry, reason=str(found))


def new_report(request: Request) -> Report:
    """Create the report on a request, without its engines."""
    seconds = request.program.seconds
    return Report(
        name=request.program.name,
        backend=request.backend.name,
        target=request.target.label,
        export_s=seconds["export"],
        decompose_s=seconds["decompose"],
        lower_s=seconds["lower"],
        key_s=request.key_s,
        route=request.route,
    )


def build_missing(
    partitions: Mapping[int, Request], cache: Cache, folder: Path
) -> dict[int, tuple[Entry, BuildDetails] | BuildError | BusyError]:
    """Build missing partitions in several processes; return the outcomes by partition number.

    Empty if one process is enough.

    This process builds as well; the other processes end with this call, even if it fails. Equal partitions are built
    once. Partitions that only this process can build are left out.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
    """
    missing = _buildable_elsewhere(partitions, cache)
    wanted = next((part.settings.build_processes for part in partitions.values()), None)
    processes = min(wanted or cores(), len(missing))
    if processes < 2:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    from trtcache.compiler.build_pool import Pool

    log.info("building %d partitions in %d processes", len(missing), processes)
    waiting = deque(numbers[0] for numbers in missing.values())
    found: dict[int, tuple[Entry, BuildDetails] | BuildError | BusyError] = {}

    def work(worker: Worker | None) -> None:
        while waiting:
            try:
                number = waiting.popleft()
            except IndexError:  # another thread has taken the last one
                return
            try:
                found[number] = get_or_build_entry(partitions[number], cache, folder / str(number), worker)
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


def _buildable_elsewhere(partitions: Mapping[int, Request], cache: Cache) -> dict[str, list[int]]:
    """Return the partitions to build that another process can build, by the digests of their keys.

    No remote is asked: ``Cache.get_or_build_key`` does so, with the lock of the entry.
    """
    missing: dict[str, list[int]] = {}
    for number, part in partitions.items():
        if not part.backend.capabilities.builds_elsewhere or not isinstance(part.key, CacheKey):
            continue
        if part.backend.bakes_weights(part.settings):
            continue  # workers do not receive the values of weights
        if cache.config.recache or cache.layers.why_missed(part.key.digest):
            missing.setdefault(part.key.digest, []).append(number)
    return missing
