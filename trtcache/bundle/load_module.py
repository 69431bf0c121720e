"""Loading of program files into ``CompiledModule``: choose the target that fits, load engines and weights."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends import registry
from trtcache.backends.fitness import StoredTarget
from trtcache.backends.protocol import CONSTANTS, INTERFACE, WEIGHT_MAP, Engine
from trtcache.backends.registry import load_engine
from trtcache.bundle.archive import BROKEN, PROGRAM, ProgramArchive, choose, parse, read_signature
from trtcache.bundle.engines import EngineReader, report_engine
from trtcache.bundle.formats import MissingOperator, read_partitions, read_structure
from trtcache.errors import NoFittingEngineError, ProgramContentError, RefitError, RunError, WeightMapError
from trtcache.frontends.weight_files import read_tensors
from trtcache.lowering.interface import parse_sources
from trtcache.partition.division import PartitionedProgram
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.executable import Executable, Provenance, in_order, parse_interface, read_constants
from trtcache.runtime.executor import ExecutionPlan, PartitionedEngine, weights_of
from trtcache.runtime.module_call import CallSignature
from trtcache.weights.slots import EngineWeights, fit

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.store.contract import Entry
    from trtcache.weights.files import TensorRecord


def load_module(archive: ProgramArchive, cache: Cache | None) -> CompiledModule:
    """Return the module of a verified program file.

    Raises:
        DamagedProgramError: its content is inconsistent.
        NoFittingEngineError: none of its engines can run here; the message says why, and the simplest remedy.
        MissingEngineError: a referenced engine or sidecar file is missing.
        IncompatibleEngineError: an engine that fits cannot be loaded.
    """
    try:
        return _ProgramReader(archive, cache).module()
    except MissingOperator as error:
        remedy = "import the library that defines it, and load the program then"
        raise NoFittingEngineError(
            str(archive.path), "what stays in torch cannot run here", (str(error),), remedy
        ) from error
    except (RunError, torch.OutOfMemoryError, torch.AcceleratorError):  # RuntimeErrors that no content of a file causes
        raise
    except BROKEN as error:
        why = f"its content is inconsistent ({type(error).__name__}: {error})"
        raise ProgramContentError(str(archive.path), why) from error


class _ProgramReader:
    """A program file that is being loaded."""

    def __init__(self, archive: ProgramArchive, cache: Cache | None) -> None:
        self._archive = archive
        self._path = str(archive.path)
        self._document = parse(archive.read(PROGRAM))
        self._engines = EngineReader(archive, self._document["targets"], cache)
        self._device = torch.device(self._document["device"])
        if self._device.type == "cuda" and torch.cuda.is_available():  # the file has a type without an index
            self._device = torch.device("cuda", torch.cuda.current_device())
        self._chosen = choose([self._stored_target(*one) for one in enumerate(self._document["targets"])], self._path)
        self._target = self._document["targets"][self._chosen.number]

    def _stored_target(self, number: int, record: Any) -> StoredTarget:
        first: Any = next(iter(record["engines"]), None)

        def member(name: str) -> bytes:
            inside = first["members"].get(name)
            return bytes(self._archive.read(inside) if inside else self._engines.entry(first).read(name))

        words = str(record["backend"]), str(record["label"])
        return StoredTarget(
            number, *words, dict(record["target"]), dict(record["toolchain"]), member if first else None
        )

    def module(self) -> CompiledModule:
        """Return the module of the chosen target."""
        document, chosen = self._document, self._chosen
        entries = {int(one["part"]): self._engines.entry(one) for one in self._target["engines"]}
        if document["division"] is None:
            division, found = PartitionedProgram(), {0: self._engine_executable(entries[0], document["slots"])}
        else:
            records = enumerate(document["division"]["parts"])
            slots = {number: one["slots"] for number, one in records if one["kind"] == "engine"}
            found = {number: self._engine_executable(entries[number], names) for number, names in slots.items()}
            division = read_partitions(document["division"], found)
        interface = parse_interface(document["interface"], document["weight_map"], document["slots"])
        constants = found[0].constants if division.is_one_engine else self._constants(found.values())
        executable = Executable(
            interface,
            self._device,
            constants,
            frozenset(map(str, document["known"])),
            parse_sources(document["sources"]),
        )
        weights = self._weights(executable)
        call = CallSignature(
            read_structure(document["arguments"]),
            read_structure(document["output"]),
            read_signature(document["signature"]),
        )
        engines, reports = self._load_engines(entries, found, division, weights)
        engine: Engine = (
            engines[0]
            if division.is_one_engine
            else PartitionedEngine(
                ExecutionPlan(division, interface, self._device), engines, weights, executable.constants
            )
        )
        module = CompiledModule(executable, engine, weights, call)
        module.origin = Provenance(
            backend=chosen.backend,
            target=chosen.target,
            label=chosen.label,
            toolchain=chosen.toolchain,
            entries=entries,
            division=division,
            parameters=frozenset(map(str, document["parameters"])),
        )
        module.report = Report(
            str(document["name"]), chosen.backend, chosen.label, reports, route="program", left=division.left
        )
        module.report.guards = module.guards
        for entry in entries.values():
            self._engines.keep(entry)
        return module

    def _load_engines(
        self,
        entries: Mapping[int, Entry],
        found: Mapping[int, Executable],
        division: PartitionedProgram,
        weights: EngineWeights,
    ) -> tuple[dict[int, Engine], list[PartitionReport]]:
        """Return the engines by partition number, with their weights, and their reports."""
        backend = registry.find(self._chosen.backend, self._device.type)
        engines: dict[int, Engine] = {}
        reports = []
        for record, (number, entry) in zip(self._target["engines"], entries.items(), strict=True):
            own = weights if division.is_one_engine else weights_of(division, number, weights)
            start = time.perf_counter()
            constants = found[number].constants
            engines[number] = load_engine(backend, entry, device=self._device, constants=constants, weights=own)
            count, load_s = len(found[number].interface.weights), time.perf_counter() - start
            reports.append(report_engine(entry, record["way"], weights=count, load_s=load_s, path=self._path))
        return engines, reports

    def _constants(self, engines: Iterable[Executable]) -> Mapping[str, torch.Tensor]:
        """Return all constants of a partitioned program by name: those of torch partitions from the file."""
        names = self._document["constants"]
        wanted = self._document["interface"]["constants"]  # by name: the digest of a constant and its device type
        found = self._tensors(self._archive.tensor_records("constants", set(names.values()))) if names else {}
        of_torch = {}
        for own, name in names.items():
            device = str(wanted[own][1])
            of_torch[str(own)] = found[name].to(self._device if device == self._device.type else device)
        of_engines = {
            (digest, tensor.device.type): tensor
            for engine in engines
            for digest, tensor in zip(engine.interface.constants, engine.constants.values(), strict=True)
        }
        return {own: of_torch[own] if own in of_torch else of_engines[tuple(wanted[own])] for own in in_order(wanted)}

    def _tensors(self, records: Mapping[str, TensorRecord]) -> dict[str, torch.Tensor]:
        return read_tensors(records, self._archive.read, {}, device=torch.device("cpu"))

    def _weights(self, executable: Executable) -> EngineWeights:
        """Return the weights in the file, fitted to the engines."""
        state = self._tensors(self._archive.weight_records(executable.interface))
        moved = {name for slot in executable.interface.slots if slot.device != "cpu" for name in slot.names}
        placed = {name: tensor.to(self._device) if name in moved else tensor for name, tensor in state.items()}
        try:
            return fit(executable.interface.weights, placed, known=executable.known, device=self._device)
        except RefitError as error:
            raise WeightMapError(self._path, f"its weights do not fit its engines ({error})") from error

    def _engine_executable(self, entry: Entry, slots: Any) -> Executable:
        """Return the executable of an engine's entry."""
        document, recipes = (json.loads(bytes(entry.read(name))) for name in (INTERFACE, WEIGHT_MAP))
        interface = parse_interface(document, recipes, slots)
        constants = read_constants(bytes(entry.read(CONSTANTS)), document["constants"], self._device)
        if list(constants) != in_order(constants):  # engines take them by position
            raise ValueError("constants out of order")
        return Executable(interface, self._device, constants, frozenset(), {})
