"""From a lowered program with its key to a compiled module: the entry, the engine, this model's weights."""

from __future__ import annotations

import inspect
import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

from trtcache.backends.tuning_cache import use_tuning_store
from trtcache.compiler.alias_lookup import Shortcut
from trtcache.compiler.lookup import entry_for, partition_of, report_of, requests_of, second_choice_for
from trtcache.compiler.parallel_builds import built_at_once
from trtcache.compiler.request import collector_paused, exported_of, request_for
from trtcache.digests import CacheKey, canonical
from trtcache.errors import BuildError, BusyError, CanonicalizationError, IncompatibleEngineError
from trtcache.frontends.exported import LiveProgram
from trtcache.partition.partitioner import keep_in_torch, move_to_torch
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.executable import Executable
from trtcache.runtime.executor import ExecutionPlan, PartitionedEngine, weights_of
from trtcache.runtime.parallel import InterOp
from trtcache.runtime.provenance import Provenance, load_members, parameters_of
from trtcache.runtime.signature import CallSignature
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.backends.protocol import Engine
    from trtcache.cache import Cache
    from trtcache.compiler.request import Exported, Model, Request
    from trtcache.digests import Json
    from trtcache.lowering.interface import Interface
    from trtcache.partition.partitions import PartitionedProgram
    from trtcache.settings import Settings
    from trtcache.store.entry import Entry
    from trtcache.weights.slots import Fitted

log = logging.getLogger(__name__)

Made: TypeAlias = "tuple[Engine, PartitionedProgram, dict[int, Entry]]"
"""A live engine, the parts that it has in the end, and the entries of those that are engines."""


def compile_exported(
    exported: Exported, model: Model, *, cache: Cache, settings: Settings, target: str | None
) -> CompiledModule:
    """Compile an exported program; ``report.compile_s`` is left to the caller.

    Raises:
        ExportError: an operator cannot be decomposed, or no engine takes something in the program.
        BackendUnavailableError: the backend cannot run here.
        SettingsError: the target is unknown, or the program has nothing of a name that the settings have.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process builds it, the cache is not to wait, and the settings want no part in torch.
    """
    return Compilation(exported, model, cache=cache, settings=settings, target=target).module()


def begin(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    *,
    dynamic_shapes: Any,
    backend: str,
    settings: Settings,
    target: str | None,
    cache: Cache,
    name: str,
) -> Compilation:
    """Export one of a model's graphs and begin to compile it, for a door that looks at its interface before it goes on.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown.
    """
    exported = replace(exported_of(model, args, None, dynamic_shapes, backend, settings, name), of_a_piece=True)
    return Compilation(exported, model, cache=cache, settings=settings, target=target)


class Compilation:
    """The compiling of an exported program in two steps: what it is found to be, and a module.

    It goes by a memo, without lowering, if there is one; if not, the next time there is.
    """

    def __init__(
        self, exported: Exported, model: Model, *, cache: Cache, settings: Settings, target: str | None
    ) -> None:
        """Find the program's engine by a memo, or lower the program.

        Raises:
            ExportError: an operator cannot be decomposed, or no engine takes something in the program.
            BackendUnavailableError: the backend cannot run here.
            SettingsError: the target is unknown, or the program has nothing of a name that the settings have.
        """
        from trtcache.lowering.capture import reject_fake_weights  # torch.export is imported, since there is a program

        reject_fake_weights(exported.program, exported.name)
        self._exported, self._model, self._cache = exported, model, cache
        live = LiveProgram(exported.program, exported.name, _forward(model))
        with collector_paused():
            shortcut = Shortcut.of(live, backend=exported.backend.name, settings=settings, target=target, cache=cache)
            self._module = shortcut.compiled(exported.name) if shortcut else None
        self._shortcut = shortcut
        self._request = None if self._module else request_for(exported, settings, target)

    @property
    def interface(self) -> Interface:
        """What goes into the program and comes out of it, and its weights."""
        if self._module is not None:
            return self._module.interface
        assert self._request is not None  # noqa: S101  # there is one of both
        interface: Interface = self._request.program.interface
        return interface

    @property
    def keyless(self) -> CanonicalizationError | None:
        """Why a program that is one engine has no key, if it has none."""
        request = self._request
        if request is None or not request.division.is_whole or isinstance(request.key, CacheKey):
            return None
        return request.key

    def module(self) -> CompiledModule:
        """Return the compiled module; ``report.compile_s`` is left to the caller.

        Raises:
            BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no
                hit.
            BuildError: the build failed.
        """
        request, exported = self._request, self._exported
        if self._module is not None:
            self._module.report.export_s = exported.export_s
            return self._module
        assert request is not None  # noqa: S101  # there is one of both
        module = compile_request(request, self._cache, self._model)
        if self._shortcut:
            took_s = request.took_s - exported.export_s
            self._shortcut.keep(exported.program, request.program, request.key, took_s)
        return module


def compile_request(request: Request, cache: Cache, model: Model) -> CompiledModule:
    """Build, or take from the cache, what was prepared for ``model``; ``report.compile_s`` is left to the caller.

    Raises:
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``; the message says why there was no hit.
        BuildError: the build failed.
        BusyError: another process builds it, the cache is not to wait, and the settings want no part in torch.
    """
    report, weights = report_of(request), _weights(request)
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        if request.division.is_whole:
            engine, division, entries = _whole(request, cache, Path(folder), weights, report)
        else:
            engine, division, entries = _in_parts(request, cache, Path(folder), weights, report)
        origin = origin_of(request, division, entries)
    program = request.program
    call = CallSignature(program.in_spec, program.out_spec, _forward(model))
    module = CompiledModule(Executable.of(program), engine, weights, call)
    module.report, module.origin = report, origin
    report.guards = module.guards
    return module


def origin_of(request: Request, division: PartitionedProgram, entries: Mapping[int, Entry]) -> Provenance:
    """Return what a module of these entries is written to a file from; it has what files of a build have now."""
    return Provenance(
        backend=request.backend.name,
        target=cast("Mapping[str, Json]", canonical(request.target.document())),
        label=request.label,
        toolchain=cast("Mapping[str, Json]", canonical(request.backend.toolchain(request.program.device.type))),
        entries={number: load_members(entry) for number, entry in entries.items()},
        division=division,
        parameters=parameters_of(request.program.state),
        settings=request.settings,
    )


def _weights(request: Request) -> Fitted:
    program = request.program
    return fit(program.interface.weights, program.state, known=frozenset(program.state), device=program.device)


def _whole(request: Request, cache: Cache, folder: Path, weights: Mapping[str, torch.Tensor], report: Report) -> Made:
    """Return the engine of a program that is one."""
    try:
        engine, one, entry = _engine(request, cache, folder, weights)
    except BuildError as error:
        if not _may_stay_in_torch(request, error):
            raise
        division = keep_in_torch(request.program, f"its engine could not be built: {error}")
        return _in_parts(replace(request, division=division), cache, folder, weights, report)
    except BusyError as error:
        division = keep_in_torch(request.program, _eager(request, error, report))
        return _in_parts(replace(request, division=division), cache, folder, weights, report)
    report.partitions.append(one)
    return engine, request.division, {0: entry}


def _in_parts(
    request: Request, cache: Cache, folder: Path, weights: Mapping[str, torch.Tensor], report: Report
) -> Made:
    """Return what runs a program in its parts. A part that cannot be built stays in torch, if the settings let it."""
    division, program = request.division, request.program
    engines: dict[int, Engine] = {}
    entries: dict[int, Entry] = {}
    failed: dict[int, str] = {}
    parts = requests_of(request)
    found = built_at_once(parts, cache, folder, entry_for)
    for number, part in parts.items():
        own = weights_of(division, number, weights)
        try:
            engines[number], one, entries[number] = _engine(part, cache, folder, own, found.get(number))
        except BuildError as error:
            if not _may_stay_in_torch(request, error):
                raise
            failed[number] = f"its engine could not be built: {error}"
        except BusyError as error:
            failed[number] = _eager(part, error, report)
        else:
            report.partitions.append(one)
    if failed:
        division = move_to_torch(division, program, failed)
    report.left = division.left
    plan, inter_op = ExecutionPlan(division, program.interface, program.device), InterOp(request.settings.threads)
    return PartitionedEngine(plan, engines, weights, program.constants, inter_op), division, entries


def _may_stay_in_torch(request: Request, error: BuildError) -> bool:
    settings = request.settings
    if settings.on_build_failure != "torch" or settings.require_full_compilation:
        return False
    log.warning("%s: a part of it stays in torch, since its engine could not be built: %s", request.program.name, error)
    return True


def _eager(request: Request, error: BusyError, report: Report) -> str:
    """Note that an engine runs in torch this time, and return why.

    Raises:
        BusyError: the settings want engines and nothing else.
    """
    if request.settings.require_full_compilation:
        raise error
    why = f"{error.builder or 'another process'} builds its engine now"
    log.warning("%s runs in torch in this process, without an engine: %s", request.program.name, why)
    key, weights = request.key if isinstance(request.key, CacheKey) else None, len(request.program.interface.weights)
    report.partitions.append(PartitionReport(key, "eager", "busy", weights, error.waited_s, 0.0, 0.0, None, why))
    return why


def _engine(
    request: Request,
    cache: Cache,
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    found: tuple[Entry, str] | BuildError | BusyError | None = None,
) -> tuple[Engine, PartitionReport, Entry]:
    """Return a live engine, from the cache or built, the report on it, and its entry; ``found`` is what is known of it.

    Raises:
        BuildError: the build failed.
        BusyError: another process builds it, and the cache is not to wait.
    """
    if isinstance(found, (BuildError, BusyError)):
        raise found
    second = second_choice_for(request, cache)
    entry, why = found or ((second, "") if second else entry_for(request, cache, folder))
    entry = load_members(entry)  # the module and its engine have the very same bytes
    start = time.perf_counter()
    try:
        engine = _load(request, entry, weights, cache)
    except IncompatibleEngineError as error:
        if entry.outcome == "built":
            raise
        log.warning("the entry for %s cannot be loaded and is built again: %s", entry.key.digest[:16], error)
        if second is None:  # a plan for another product is not damaged by that
            cache.reject(entry, "load")
        entry, why = entry_for(request, cache, folder)
        entry = load_members(entry)
        start = time.perf_counter()
        engine = _load(request, entry, weights, cache)
    return engine, partition_of(request, entry, why, time.perf_counter() - start), entry


def _forward(model: Model) -> inspect.Signature | None:
    return inspect.signature(model.forward) if isinstance(model, torch.nn.Module) else None


def _load(request: Request, entry: Entry, weights: Mapping[str, torch.Tensor], cache: Cache) -> Engine:
    program = request.program
    with use_tuning_store(cache):
        return request.backend.load_entry(
            entry.read, device=program.device, constants=program.constants, weights=weights
        )
