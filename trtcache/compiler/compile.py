"""Compilation of a source, from its fingerprint to a module with loaded engines. Read ``compile_source`` first.

To add a kind of source, derive a class from ``trtcache.frontends.source.Source`` and add a line to
``trtcache.frontends.resolve``; nothing in this file depends on the kind. To add a kind of store, see
``trtcache.store.contract``.

On a miss the calls are ``build_and_load``, ``_load_whole`` or ``_load_partitions`` (which calls ``build_missing``
first), ``_load_engine``, ``entries.entry_for``, ``Cache.fetch``, and the backend's ``build``.
"""

from __future__ import annotations

import logging
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from trtcache.backends.calls import load_engine
from trtcache.backends.protocol import ENGINE, use_tuning_store
from trtcache.compiler.alias_lookup import AliasLookup
from trtcache.compiler.entries import entries_for, entry_for, report_partition, report_request, second_choice_for
from trtcache.compiler.parallel_builds import build_missing
from trtcache.config import paused_collector
from trtcache.digests import CacheKey, canonical
from trtcache.errors import BuildError, BusyError, CanonicalizationError, IncompatibleEngineError, PartitionError
from trtcache.partition.partitions import summarize_left
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.executable import Executable
from trtcache.runtime.executor import ExecutionPlan, PartitionedEngine, weights_of
from trtcache.runtime.parallel import InterOp
from trtcache.runtime.provenance import Provenance, load_members, parameters_of
from trtcache.runtime.signature import CallSignature

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from trtcache.backends.protocol import Engine
    from trtcache.cache import Cache
    from trtcache.digests import Json
    from trtcache.frontends.request import EngineRequest
    from trtcache.frontends.source import CompileOptions, Source
    from trtcache.lowering.interface import Interface
    from trtcache.partition.partitions import PartitionedProgram
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)

Loaded: TypeAlias = "tuple[Engine, PartitionedProgram, dict[int, Entry]]"
"""An engine, its final partitions, and the entries of those that are engines."""


def compile_source(source: Source, options: CompileOptions, cache: Cache) -> CompiledModule:
    """Compile a source, or load its engines from the cache and set its weights; ``report.compile_s`` is not set.

    Raises:
        ExportError: the model cannot be exported, or has something that no engine supports.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process is building the engine, ``on_busy`` is ``eager``, and torch cannot run the program.
    """
    # 1. Fast path: fingerprint -> key alias -> entry. Nothing is exported, parsed or lowered. For a module,
    #    ``fingerprint`` looks up the manifest of direct mode, so a direct hit returns here.
    compilation = try_fast_path(source, options, cache)
    if compilation.module is not None:
        return compilation.module

    # 2. A module's program is unknown until it is exported. The exported program is a source of its own, with a fast
    #    path of its own: an earlier process that exported the same program has stored its alias.
    exported = source.export(options)
    if exported is not source:
        compilation = try_fast_path(exported, options, cache)

    # 3. Slow path: lower, partition, a key for each engine partition; get or build each of them, load it, set its
    #    weights, and store the key alias for the next time.
    module = compilation.finish()

    # 4. If direct mode is on, store a manifest: it leads the next process from the module to the program's alias.
    if exported is not source:
        source.remember(exported, has_alias=compilation.has_alias)
        source.annotate(module.report, is_hit=False)
    return module


@dataclass(slots=True)
class Compilation:
    """A compilation after its fast path was tried.

    Attributes:
        source: the source to compile.
        options: the options of the compilation.
        cache: the cache of entries and aliases.
        lookup: the look-up of the source's key alias; None if there is no store, or it cannot have one.
        module: the module from the fast path; None if the source has to be lowered.
        request: the lowered program, after ``prepare``.
    """

    source: Source
    options: CompileOptions
    cache: Cache
    lookup: AliasLookup | None
    module: CompiledModule | None
    request: EngineRequest | None = None

    def prepare(self) -> Interface:
        """Lower the program unless the fast path found its engine, and return its interface; nothing is built."""
        if self.module is not None:
            return self.module.interface
        if self.request is None:
            self.request = self.source.request(self.options)
        interface: Interface = self.request.program.interface
        return interface

    @property
    def has_alias(self) -> bool:
        """Whether the source's key alias is stored."""
        return self.lookup is not None and self.lookup.is_stored

    @property
    def why_no_key(self) -> CanonicalizationError | None:
        """Why a prepared program that is one engine has no key; None if it has one."""
        if self.request is None or not self.request.division.is_whole or isinstance(self.request.key, CacheKey):
            return None
        return self.request.key

    def finish(self) -> CompiledModule:
        """Return the compiled module: build what is not stored, load the engines, and store the key alias."""
        if self.module is not None:
            return self.module
        self.prepare()
        assert self.request is not None  # noqa: S101  # it is prepared
        module = build_and_load(self.request, self.source, self.cache)
        if self.lookup is not None:
            self.lookup.store(self.request)
        return module


def try_fast_path(source: Source, options: CompileOptions, cache: Cache) -> Compilation:
    """Return a compilation whose ``module`` is set if the source's key alias led to an engine."""
    source.require_weights()
    with paused_collector():
        lookup = AliasLookup.of(source, options, cache)
        module = lookup.load() if lookup is not None else None
    return Compilation(source, options, cache, lookup, module)


def build_source(source: Source, options: CompileOptions, cache: Cache, output: Path | None = None) -> Report:
    """Put the engines of a source into the cache unless they are there, without loading them.

    The source is exported first; direct mode is not used.

    Args:
        source: the source to build.
        options: the options of the build.
        cache: the cache to put entries into.
        output: a file to write the engine to as well.

    Raises:
        PartitionError: ``output`` was passed, and the program is not one engine.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: the build failed.
        OSError: ``output`` cannot be written.
    """
    source = source.export(options)
    lookup = AliasLookup.of(source, options, cache)
    found = lookup.find() if lookup is not None else None
    if lookup is not None and found is not None:
        source.check_content(found.alias.content_digest)
        if output is not None:
            found.entry.write(ENGINE, output)
        return lookup.report(found)
    request = source.request(options)
    if output is not None and not request.division.is_whole:
        why = "a file holds one engine; leave the output out"
        raise PartitionError(request.program.name, why, summarize_left(request.division.left))
    report = report_request(request)
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        entries = entries_for(request, cache, Path(folder), report)
        if output is not None and entries:
            entries[0].write(ENGINE, output)
    if lookup is not None:
        lookup.store(request)
    return report


def build_and_load(request: EngineRequest, source: Source, cache: Cache) -> CompiledModule:
    """Get or build the engines of a lowered program, load them, and return the compiled module.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process builds it, the cache does not wait, and the settings leave no part to torch.
    """
    report, weights, program = report_request(request), request.engine_weights(), request.program
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        load = _load_whole if request.division.is_whole else _load_partitions
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
    )


def _load_whole(
    request: EngineRequest, cache: Cache, folder: Path, weights: Mapping[str, torch.Tensor], report: Report
) -> Loaded:
    """Load the engine of a program that is a single partition."""
    try:
        engine, partition_report, entry = _load_engine(request, cache, folder, weights)
    except BuildError as error:
        if not _accept_build_failure(request, error):
            raise
        why = f"its engine could not be built: {error}"
    except BusyError as error:
        why = _report_busy(request, error, report)
    else:
        report.partitions.append(partition_report)
        return engine, request.division, {0: entry}
    from trtcache.partition.partitioner import keep_in_torch  # imports sympy, which takes half a second

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
    built = build_missing(partitions, cache, folder, entry_for)
    done = [outcome[0] for outcome in built.values() if isinstance(outcome, tuple)]
    build_s = sum(entry.build_s for entry in done if entry.outcome == "built")
    report.overlapped_s = max(0.0, build_s - (time.perf_counter() - start))
    for number, partition_request in partitions.items():
        own = weights_of(division, number, weights)
        try:
            engines[number], partition_report, entries[number] = _load_engine(
                partition_request, cache, folder, own, built.get(number)
            )
        except BuildError as error:
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


def _accept_build_failure(request: EngineRequest, error: BuildError) -> bool:
    """Return whether the settings let what could not be built stay in torch, and log it."""
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
    built: tuple[Entry, str] | BuildError | BusyError | None = None,
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

    fallback = second_choice_for(request, cache)
    if built is not None:
        entry, why = built
    elif fallback is not None:
        entry, why = fallback, ""
    else:
        entry, why = entry_for(request, cache, folder)
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
        entry, why = entry_for(request, cache, folder)
        entry = load_members(entry)
        start = time.perf_counter()
        engine = load(entry)
    load_s, count = time.perf_counter() - start, len(request.program.interface.weights)
    return engine, report_partition(entry, key=request.key, weights=count, why=why, load_s=load_s), entry
