"""Requests: a lowered program with its cache key and the backend that builds it."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trtcache.backends.protocol import ENGINE, Artifact, Backend, make_members
from trtcache.backends.registry import build_artifact, why_unavailable
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey, Json, canonical
from trtcache.errors import BackendUnavailableError, BuildError, CanonicalizationError
from trtcache.keys.key import EXAMPLE_SIZES, frozen_part, key_parts, part_digests
from trtcache.lowering import TORCH_LOCK
from trtcache.partition.division import PartitionedProgram, summarize_left
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from trtcache.frontends.source import CompileOptions, Source
    from trtcache.keys.stored_graph import StoredGraph
    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.store.contract import Entry
    from trtcache.store.format import Built
    from trtcache.target import Target

keys_log = logging.getLogger("trtcache.keys")


@frozen_dataclass(kw_only=True)
class Request(ABC):
    """The description of a program that look-ups, builds and compiled modules use.

    Attributes:
        program: the lowered program, or an object with its attributes ``name``, ``interface``, ``device``,
            ``constants``, ``state``, ``constant_contents``, ``live``, ``in_spec``, ``out_spec``, ``seconds`` and
            ``example_sizes``.
        backend: the backend that builds it.
        settings: the settings of the build.
        target: the target of the engine.
        key: the cache key, or the reason that it has none. A program that is compiled in partitions has none.
        key_s: seconds that partitioning and the key took.
        division: its partitions.
        input_names: names of inputs that need not be Python identifiers; None if the signature names the inputs.
        route: the name of the slow path in reports.
        is_torch: whether torch can run the program.
    """

    program: Any
    backend: Backend
    settings: Settings
    target: Target
    key: CacheKey | CanonicalizationError
    key_s: float
    division: PartitionedProgram = field(default_factory=PartitionedProgram)
    input_names: tuple[str, ...] | None = None

    route: ClassVar[str] = "lowered"
    is_torch: ClassVar[bool] = True

    @property
    def took_s(self) -> float:
        """Seconds of export, lowering and the key."""
        seconds: float = sum(self.program.seconds.values()) + self.key_s
        return seconds

    @property
    @abstractmethod
    def partitions(self) -> Mapping[int, Request]:
        """The requests for the engines of the program, by the numbers of their partitions."""

    @abstractmethod
    def build(self, folder: Path) -> Artifact:
        """Build the engine, with temporary files in ``folder``.

        Raises:
            BuildError: the build failed.
        """

    @abstractmethod
    def members(self, artifact: Artifact) -> Built:
        """Return the members of the engine's entry."""

    @abstractmethod
    def graph(self) -> StoredGraph:
        """Return the graph in the form that entries store."""

    @abstractmethod
    def engine_weights(self) -> Mapping[str, torch.Tensor]:
        """Return the engines' weights, by their names for them.

        Raises:
            RefitError: one is on another device.
        """

    def freeze(self) -> Request | None:
        """Return the request for an engine with these weights embedded; None if it cannot be built."""
        return None

    def for_example(self, entry: Entry) -> Request | None:  # noqa: ARG002  # a default
        """Return the request for an engine for the example's sizes; None if the engine of an entry takes them."""
        return None

    def weight_file(self) -> Any:
        """Return the reader of weights for refits from files of this kind; None if any file of weights can be read."""
        return None


@frozen_dataclass(kw_only=True)
class TorchRequest(Request):
    """The request for a torch program.

    Attributes:
        program: the lowered program.
        records: its graph in canonical form, one record for each node.
    """

    program: LoweredProgram
    records: list[Json] = field(default_factory=list)

    @property
    def partitions(self) -> dict[int, TorchRequest]:
        """The requests for the engines of the program, by the numbers of their partitions."""
        if self.division.is_one_engine:
            return {0: self}
        return {
            number: make_request(part.program, self.backend, self.settings, self.target)
            for number, part in self.division.engines.items()
        }

    def build(self, folder: Path) -> Artifact:
        """Build the engine, with temporary files in ``folder``.

        Raises:
            BuildError: the build failed, or weights changed whose values are in the key.
        """
        artifact = build_artifact(self.backend, self.program, self.settings, self.target, folder)
        slots = self.backend.frozen_slots(self.program, self.settings)
        if slots and isinstance(self.key, CacheKey):  # their values are in the key
            parts = self.key.parts
            if parts["frozen"] != canonical(frozen_part(self.program, slots)["frozen"]):
                why = "weights that the engine has in it changed meanwhile; compile it again"
                raise BuildError(self.backend.name, why)
        return artifact

    def members(self, artifact: Artifact) -> Built:
        """Return the members of the engine's entry."""
        if isinstance(self.key, CanonicalizationError):
            return {ENGINE: artifact.engine, **artifact.members}
        return {**make_members(self.program, self.records, artifact.engine), **artifact.members}

    def graph(self) -> StoredGraph:
        """Return the lowered graph in the form that entries store."""
        from trtcache.keys.graph_digest import graph_document
        from trtcache.keys.stored_graph import StoredGraph

        return StoredGraph.of(graph_document(self.program, self.records))

    def engine_weights(self) -> Mapping[str, torch.Tensor]:
        """Return the engines' weights, by their names for them."""
        state, weights = self.program.state, self.program.interface.weights
        return fit(weights, state, known=frozenset(state), device=self.program.device)

    def freeze(self) -> TorchRequest | None:
        """Return the request for an engine with these weights embedded; None if that is not allowed, or has no key."""
        settings = self.backend.freeze(self.settings) if self.backend.capabilities.can_freeze else None
        if settings is None:
            return None
        slots = self.backend.frozen_slots(self.program, settings)
        if slots == self.backend.frozen_slots(self.program, self.settings) or not isinstance(self.key, CacheKey):
            return None
        try:
            parts = {"settings": settings.document(), **frozen_part(self.program, slots)}
            changed = {name: canonical(part) for name, part in parts.items()}
        except CanonicalizationError:
            return None
        return replace(self, settings=settings, key=_with_parts(self.key, changed))

    def for_example(self, entry: Entry) -> TorchRequest | None:
        """Return the request for an engine for the example's sizes; None if the engine of an entry takes them.

        The key has those sizes on whose values engines of the program have been found to rely.
        """
        known = self.program.example_sizes
        refused = self.backend.refused_sizes(entry.read, known)
        if not refused or not isinstance(self.key, CacheKey):
            return None
        document: dict[str, Any] = self.key.document
        before: list[Any] = document["parts"].get(EXAMPLE_SIZES, [])
        numbers = refused | {number for number, _ in before}
        sizes: list[Json] = [[number, known[number]] for number in sorted(numbers)]
        return None if sizes == before else self.with_example_sizes(sizes)

    def with_example_sizes(self, sizes: Json) -> TorchRequest:
        """Return the request for an engine for the example's sizes: pairs of a symbol's number and its value."""
        if not isinstance(self.key, CacheKey):
            return self
        return replace(self, key=_with_parts(self.key, {EXAMPLE_SIZES: sizes}))


def _with_parts(key: CacheKey, changed: Mapping[str, Json]) -> CacheKey:
    """Return a key with other parts, or with more."""
    document: dict[str, Any] = key.document
    return CacheKey.of_document({**document, "parts": {**document["parts"], **changed}})


def lower_program(
    program: ExportedProgram, source: Source, options: CompileOptions, *, export_s: float, trace: bool = False
) -> LoweredProgram:
    """Lower an exported program for its source's backend.

    Raises:
        ExportError: an operator cannot be decomposed, or is not supported by any engine.
        PassError: a lowering pass broke its contract.
        SettingsError: the program has no module that the settings name.
    """
    from trtcache.lowering.rewrites.optional import Autocast
    from trtcache.lowering.stages import TorchSelection, lower

    settings, capabilities = options.settings, source.find_backend(options).capabilities
    autocast = None
    if settings.autocast is not None:
        autocast = Autocast(settings.autocast, tuple(sorted(settings.autocast_exclude)))
    modules, operators = tuple(settings.torch_executed_modules), tuple(settings.torch_executed_ops)
    with TORCH_LOCK:
        lowered = lower(
            program,
            keep=capabilities.keep,
            unpack=capabilities.unpack,
            torch_executed=TorchSelection(modules, operators, options.is_subgraph),
            autocast=autocast,
            name=source.name,
            trace=trace,
        )
    lowered.seconds["export"] = export_s
    return lowered


def partition_and_request(
    program: LoweredProgram, backend: Backend, settings: Settings, target: str | None
) -> TorchRequest:
    """Partition a lowered program, and make the key if it is a single engine.

    Raises:
        BackendUnavailableError: the backend cannot run on the program's device.
        SettingsError: the target is unknown.
        PartitionError: the settings require one engine, and an operator would stay in torch.
    """
    from trtcache.lowering.program import without_small_sizes
    from trtcache.partition.partitioner import partition_program

    if why := why_unavailable(backend, program.device.type):
        raise BackendUnavailableError(backend.name, why)
    if not backend.capabilities.small_sizes:
        program = without_small_sizes(program)
    start = time.perf_counter()
    division = partition_program(program, backend, settings)
    resolved = backend.target(target, program.device)
    if division.is_one_engine:
        return make_request(program, backend, settings, resolved, started=start)
    in_torch = "; ".join(summarize_left(division.left))
    counts = f"{len(division.parts)} parts, engines with keys of their own: {len(division.engines)}"
    why_none = CanonicalizationError(
        program.name, f"it is compiled in {counts}; in torch: {in_torch} (trtcache partition)"
    )
    return TorchRequest(
        program=program,
        backend=backend,
        settings=settings,
        target=resolved,
        key=why_none,
        key_s=time.perf_counter() - start,
        division=division,
    )


def make_request(
    program: LoweredProgram, backend: Backend, settings: Settings, target: Target, *, started: float | None = None
) -> TorchRequest:
    """Make the request for a program that is one engine, with its key.

    The key has the digest of the canonical graph, the inputs, the structure of arguments and output, layouts, sizes and
    guards, the passes, the settings, the target, the versions of the backend and of custom operators, and the values of
    weights that the engine will have in it.

    Args:
        program: the lowered program.
        backend: the backend that builds it.
        settings: the settings of the build.
        target: the target of the engine.
        started: when work on the key began, as ``time.perf_counter`` counts; by default now.
    """
    from trtcache.keys.graph_digest import graph_records
    from trtcache.lowering.operators import identify_operators, operator_names

    start = time.perf_counter() if started is None else started
    toolchain, ambient = backend.versions(program.device.type), backend.ambient()
    records: list[Json] = []
    key: CacheKey | CanonicalizationError
    try:
        declared = settings.operator_versions
        operators = identify_operators((node.target for node in program.order), declared)
        records, graph = graph_records(program, {*declared, *operator_names(operators)})
        parts = key_parts(program, graph, settings=settings, target=target, toolchain=toolchain, ambient=ambient)
        if operators:  # a program without custom operators keeps its key
            parts["operators"] = operators
        parts |= frozen_part(program, backend.frozen_slots(program, settings))
        key = CacheKey.of(backend.name, parts)
        if keys_log.isEnabledFor(logging.DEBUG):
            keys_log.debug("%s is %s %s: %s", program.name, backend.name, key, part_digests(key))
    except CanonicalizationError as error:
        key = error
    return TorchRequest(
        program=program,
        records=records,
        backend=backend,
        settings=settings,
        target=target,
        key=key,
        key_s=time.perf_counter() - start,
    )
