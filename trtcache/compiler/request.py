"""What a caller asked for, lowered and with its key: everything that is known before the cache is asked."""

from __future__ import annotations

import gc
import logging
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from trtcache.backends import registry
from trtcache.config import logs
from trtcache.digests import CacheKey, canonical
from trtcache.errors import BackendUnavailableError, CanonicalizationError, SettingsError
from trtcache.frontends.pt2 import ProgramFile
from trtcache.keys.key import frozen_part, key_parts, part_digests
from trtcache.lowering.tracing_lock import ALONE
from trtcache.partition.partitions import PartitionedProgram, summarize_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trtcache.backends.protocol import Backend
    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.fallback import TorchSelection
    from trtcache.lowering.rewrites.autocast import Autocast
    from trtcache.settings import Settings
    from trtcache.target import Target

T = TypeVar("T")

keys_log = logging.getLogger("trtcache.keys")

Program = torch.nn.Module | torch.export.ExportedProgram
Model = Program | str | os.PathLike[str]
"""What can be compiled: a module, a program, or the path of a program's file."""


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that is known before the cache is asked. ``key`` may be why there is none.

    A program that is not one engine has no key; ``division`` has its parts, and each engine's part is a request.
    """

    program: LoweredProgram
    records: list[Json]
    backend: Backend
    settings: Settings
    target: Target
    key: CacheKey | CanonicalizationError
    key_s: float
    division: PartitionedProgram = field(default_factory=PartitionedProgram)

    @property
    def label(self) -> str:
        """What the engine runs on, for people."""
        return self.target.label

    @property
    def took_s(self) -> float:
        """Seconds of export, lowering and the key."""
        return sum(self.program.seconds.values()) + self.key_s


@dataclass(frozen=True, slots=True)
class Exported:
    """A program before lowering, what it is called, and what is to build it.

    ``export_s`` is what exporting it took; ``of_a_piece`` says that it is only one of the graphs that a model became.
    """

    program: torch.export.ExportedProgram
    backend: Backend
    name: str
    export_s: float
    of_a_piece: bool = False


def exported_of(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    backend: str,
    settings: Settings,
    name: str | None,
) -> Exported:
    """Export what a caller gave, and find the backend that he means.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting is unknown, or there are example inputs for a program that has its own.
    """
    logs.start(os.environ)
    model, name = opened(model, name)
    chosen = registry.find(backend, device_kind(model, args, kwargs))
    chosen.check(settings)
    if isinstance(model, torch.export.ExportedProgram):
        refuse_examples(name, args, kwargs, dynamic_shapes)
        return Exported(model, chosen, name or type(model).__name__, 0.0)
    from trtcache.lowering import capture

    start = time.perf_counter()
    with ALONE, collector_paused():
        program = capture.export(model, tuple(args), dict(kwargs or {}), dynamic_shapes)
    return Exported(program, chosen, name or type(model).__name__, time.perf_counter() - start)


def request_for(exported: Exported, settings: Settings, target: str | None) -> Request:
    """Lower an exported program and make its key.

    Raises:
        ExportError: an operator cannot be decomposed, or no engine takes something in it.
        PassError: a lowering pass broke its contract.
        BackendUnavailableError: the backend cannot run here.
        SettingsError: the target is unknown, or the program has no module that the settings name.
    """
    with collector_paused():
        piece = exported.of_a_piece
        program = lowered(exported.program, (), None, None, exported.backend, settings, exported.name, of_a_piece=piece)
        program.seconds.update(export=exported.export_s)  # type: ignore[attr-defined]  # a dict that is still ours
        return _with_key(program, exported.backend, settings, target)


def request_of(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    backend: str,
    settings: Settings,
    target: str | None,
    name: str | None,
) -> Request:
    """Lower what a caller gave and make its key.

    Raises:
        ExportError: the model cannot be exported.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: a setting or the target is unknown, or there are example inputs for a program that has its own.
    """
    return request_for(exported_of(model, args, kwargs, dynamic_shapes, backend, settings, name), settings, target)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Look for no garbage meanwhile: of a BERT's export and lowering that took a fifth.

    All that was made goes to the oldest generation, or the first object after this would have it all looked through.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


def _with_key(program: LoweredProgram, chosen: Backend, settings: Settings, target: str | None) -> Request:
    from trtcache.lowering.program import without_small_sizes
    from trtcache.partition.partitioner import partition_program

    if why := chosen.unavailable(program.device.type):
        raise BackendUnavailableError(chosen.name, why)
    if not chosen.capabilities.small_sizes:
        program = without_small_sizes(program)
    start = time.perf_counter()
    division = partition_program(program, chosen, settings)
    if division.is_whole:
        return keyed(program, chosen, settings, chosen.target(target, program.device), start)
    stays = "; ".join(summarize_left(division.left))
    counts = f"{len(division.parts)} parts, engines with keys of their own: {len(division.engines)}"
    none = CanonicalizationError(program.name, f"it is compiled in {counts}; in torch: {stays} (trtcache partition)")
    resolved = chosen.target(target, program.device)
    return Request(program, [], chosen, settings, resolved, none, time.perf_counter() - start, division)


def keyed(program: LoweredProgram, chosen: Backend, settings: Settings, target: Target, start: float) -> Request:
    """Return the request for one engine; ``start`` is when work on its key began."""
    from trtcache.keys.graph_digest import graph_records

    toolchain, ambient = chosen.toolchain(program.device.type), chosen.ambient()
    records: list[Json] = []
    made: CacheKey | CanonicalizationError
    try:
        records, graph = graph_records(program, settings.operator_versions)
        parts = key_parts(program, graph, settings=settings, target=target, toolchain=toolchain, ambient=ambient)
        parts |= frozen_part(program, chosen.frozen_slots(program, settings))
        made = CacheKey.of(chosen.name, parts)
        if keys_log.isEnabledFor(logging.DEBUG):
            keys_log.debug("%s is %s %s: %s", program.name, chosen.name, made, part_digests(made))
    except CanonicalizationError as error:
        made = error
    return Request(program, records, chosen, settings, target, made, time.perf_counter() - start)


def refuse_examples(name: str | None, args: object, kwargs: object, dynamic_shapes: object) -> None:
    """Refuse example inputs for an exported program, which was made for its own and is not made anew.

    Raises:
        SettingsError: there are some; the message says which.
    """
    given = {"args": args, "kwargs": kwargs, "dynamic_shapes": dynamic_shapes}
    if names := [one for one, value in given.items() if not _is_nothing(value)]:
        why = f"{name or 'the model'} is an exported program, with example inputs and varying sizes of its own"
        raise SettingsError(", ".join(names), f"{why}; leave this out, or give the torch.nn.Module")


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, (tuple, list, dict)) and not value)


def frozen_request(request: Request) -> Request | None:
    """Return the request for an engine of these weights alone; None if that is asked for, ruled out, or has no key."""
    given = request.settings.tensorrt
    if not request.backend.capabilities.bakes_weights or given.refit is not None or given.strip:
        return None
    settings, program = replace(request.settings, tensorrt=replace(given, refit=False)), request.program
    slots = request.backend.frozen_slots(program, settings)
    if slots == request.backend.frozen_slots(program, request.settings) or not isinstance(request.key, CacheKey):
        return None
    document: dict[str, Any] = request.key.document
    try:
        own = {"settings": canonical(settings.document()), "frozen": canonical(frozen_part(program, slots)["frozen"])}
    except CanonicalizationError:
        return None
    key = CacheKey.of_document({**document, "parts": {**document["parts"], **own}})
    return replace(request, settings=settings, key=key)


def opened(model: Model, name: str | None) -> tuple[Program, str | None]:
    """Return the program in a file, which is called like the file; what is no path as it is.

    Raises:
        ExportError: the file cannot be read, or is no exported program.
    """
    if isinstance(model, (str, os.PathLike)):
        with ProgramFile(Path(model)) as file:
            return file.program(), name or file.path.stem
    return model, name


def lowered(
    model: Program,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    backend: Backend,
    settings: Settings,
    name: str | None,
    *,
    trace: bool = False,
    of_a_piece: bool = False,
) -> LoweredProgram:
    """Lower a program as a backend wants it.

    Raises:
        ExportError: the model cannot be exported.
        PassError: a lowering pass broke its contract.
        SettingsError: the program has no module that the settings name.
    """
    from trtcache import lowering

    with ALONE:
        return lowering.lower(
            model,
            args,
            kwargs,
            dynamic_shapes=dynamic_shapes,
            keep=backend.capabilities.keep,
            unpack=backend.capabilities.unpack,
            torch_executed=_forced(settings, of_a_piece),
            autocast=_autocast(settings),
            name=name,
            trace=trace,
        )


def _forced(settings: Settings, of_a_piece: bool) -> TorchSelection:
    from trtcache.lowering.fallback import TorchSelection

    return TorchSelection(tuple(settings.torch_executed_modules), tuple(settings.torch_executed_ops), of_a_piece)


def _autocast(settings: Settings) -> Autocast | None:
    if settings.autocast is None:
        return None
    from trtcache.lowering.rewrites.autocast import Autocast

    return Autocast(settings.autocast, tuple(sorted(settings.autocast_exclude)))


def device_kind(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> str:
    """Return ``cuda`` if anything at hand is on a GPU, else ``cpu``; the lowered program has the last word."""
    state: Mapping[str, Any] = {}
    if isinstance(model, torch.nn.Module):
        state = model.state_dict(keep_vars=True)
    elif isinstance(model, torch.export.ExportedProgram):
        state = model.state_dict
    tensors = [*state.values(), *pytree.tree_leaves((args, kwargs))]
    return "cuda" if any(isinstance(one, torch.Tensor) and one.is_cuda for one in tensors) else "cpu"


def program_of(model: torch.export.ExportedProgram | str | os.PathLike[str]) -> torch.export.ExportedProgram:
    """Return a program, or the one in a file.

    Raises:
        ExportError: the file is not there, or is no exported program.
    """
    if isinstance(model, torch.export.ExportedProgram):
        return model
    with ProgramFile(Path(model)) as file:
        return file.program()


def timed(action: Callable[[], T]) -> tuple[T, float]:
    """Return what an action gives, and the seconds it took."""
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start
