"""The slow path: take the engines of a lowered program from the cache, or build them, and load them into a module."""

from __future__ import annotations

import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from trtcache.backends.calls import load_engine
from trtcache.backends.protocol import use_tuning_store
from trtcache.compiler.entries import entry_for, report_request, similar_gpu_entry_for
from trtcache.compiler.parallel_builds import build_missing
from trtcache.digests import CacheKey, canonical
from trtcache.errors import BuildError, BusyError, IncompatibleEngineError
from trtcache.runtime import CompiledModule, PartitionReport
from trtcache.runtime.executable import Executable
from trtcache.runtime.executor import ExecutionPlan, PartitionedEngine, weights_of
from trtcache.runtime.parallel import InterOp
from trtcache.runtime.provenance import Provenance, load_members, parameters_of
from trtcache.runtime.report import BuildDetails
from trtcache.runtime.signature import CallSignature

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from trtcache.backends.protocol import Engine
    from trtcache.cache import Cache
    from trtcache.digests import Json
    from trtcache.frontends.request import EngineRequest
    from trtcache.frontends.source import Source
    from trtcache.partition.division import PartitionedProgram
    from trtcache.runtime import Report
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)

Loaded: TypeAlias = "tuple[Engine, PartitionedProgram, dict[int, Entry]]"
"""An engine, its final partitions, and the entries of those that are engines."""


def build_and_load(request: EngineRequest, source: Source, cache: Cache) -> CompiledModule:
    """Get or build the engines of a lowered program, load them, and return the compiled module.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process builds it, the cache does not wait, and the settings leave no part to torch.
    """
    report, weights, program = report_request(request), request.engine_weights(), request.program
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


def provenance_of(request: EngineRequest, division: PartitionedProgram, entries: Mapping[int, Entry]) -> Provenance:
    """Return what exporting a module of these entries needs; all members are read into memory."""
    return Provenance(
        backend=request.backend.name,
        target=cast("Mapping[str, Json]", canonical(request.target.document())),
        label=request.label,
        toolchain=cast("Mapping[str, Json]", canonical(request.backend.versions(request.program.device.type))),
        entries={number: load_members(entry) for number, entry in entries.items()},
        division=division,
        parameters=parameters_of(request.program.state),
        settings=request.settings,
        example_sizes=request.program.example_sizes,
    )


def _load_whole(
    request: EngineRequest, cache: Cache, folder: Path, weights: Mapping[str, torch.Tensor], report: Report
) -> Loaded:
    """Load the engine of a program that is a single partition."""
    try:
        engine, partition_report, entry = _load_engine(request, cache, folder, weights)
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
    request: EngineRequest, cache: Cache, folder: Path, weights: Mapping[str, torch.Tensor], report: Report
) -> Loaded:
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
            engines[number], partition_report, entries[number] = _load_engine(
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


def _accept_build_failure(request: EngineRequest, error: BuildError | IncompatibleEngineError) -> bool:
    """Return whether the settings let what could not be built, or loaded once it was, stay in torch; log it."""
    settings = request.settings
    if settings.on_build_failure != "torch" or settings.require_full_compilation:
        return False
    log.warning("%s: a part of it stays in torch, since its engine could not be built: %s", request.program.name, error)
    return True


def _report_busy(request: EngineRequest, error: BusyError, report: Report) -> str:
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


def _load_engine(
    request: EngineRequest,
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

    def load(entry: Entry) -> Engine:
        constants, device = request.program.constants, request.program.device
        with use_tuning_store(cache):
            return load_engine(
                request.backend,
                entry.read,
                key=entry.key.digest,
                device=device,
                constants=constants,
                weights=weights,
            )

    fallback = similar_gpu_entry_for(request, cache)
    if built is not None:
        entry, details = built
    elif fallback is not None:
        entry, details = fallback, BuildDetails()
    else:
        entry, details = entry_for(request, cache, folder)
    entry = load_members(entry)  # the module and its engine share the same bytes
    start = time.perf_counter()
    try:
        engine = load(entry)
    except IncompatibleEngineError as error:
        if entry.outcome == "built":
            raise
        log.warning("the entry for %s cannot be loaded and is built again: %s", entry.key.digest[:16], error)
        if fallback is None:  # an engine for another GPU product may fail to load here without being damaged
            cache.reject(entry, "load")
        entry, details = entry_for(request, cache, folder)
        entry = load_members(entry)
        start = time.perf_counter()
        engine = load(entry)
    load_s, count = time.perf_counter() - start, len(request.program.interface.weights)
    return engine, PartitionReport.of(entry, key=request.key, weights=count, details=details, load_s=load_s), entry
