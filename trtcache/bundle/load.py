"""Loading of a program file: verify it, choose the target that fits, load engines and weights."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends import registry
from trtcache.backends.members import CONSTANTS, INTERFACE, WEIGHT_MAP
from trtcache.bundle import partitions as division
from trtcache.bundle import pytree as structure
from trtcache.bundle import signature
from trtcache.bundle.archive import ProgramArchive
from trtcache.bundle.engines import EngineReader
from trtcache.bundle.header import LOCAL_FILE, PROGRAM, parse
from trtcache.bundle.partitions import EngineInterface
from trtcache.bundle.target_choice import TargetOption, choose
from trtcache.bundle.tensors import read as read_tensors
from trtcache.bundle.torch_program import MissingOperator
from trtcache.config.trust import parse_keys
from trtcache.errors import (
    NoFittingEngineError,
    ProgramContentError,
    RefitError,
    SettingsError,
    WeightMapError,
)
from trtcache.lowering.interface import Content
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.executable import Executable, in_order, parse_interface, read_constants
from trtcache.runtime.executor import ExecutionPlan, PartitionedEngine, weights_of
from trtcache.runtime.provenance import Provenance
from trtcache.runtime.signature import CallSignature
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trtcache.backends.protocol import Engine
    from trtcache.cache import Cache
    from trtcache.config.trust import PublicKey
    from trtcache.partition.partitions import PartitionedProgram
    from trtcache.store.entry import Entry
    from trtcache.weights.slots import EngineWeights

log = logging.getLogger(__name__)

_WEIGHTS, _CONSTANTS = "data/weights/", "data/constants/"
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, AssertionError)
"""Errors raised by malformed documents; RuntimeError: torch rejects a size or a type."""


def load(path: Path, *, cache: Cache | None, keys: Sequence[PublicKey], trust: str | None) -> CompiledModule:
    """Load the compiled module in a file.

    Args:
        path: the file.
        cache: a cache to store its engines in, and to look up referenced engines.
        keys: the trusted keys.
        trust: None, ``local-file``, or further trusted public keys.

    Raises:
        NotAProgramError: it is not a program with engines.
        DamagedProgramError: it is damaged; the class says how.
        ProgramVersionError: it has a later format.
        UntrustedProgramError: it is not trusted.
        NoFittingEngineError: none of its engines can run here.
        MissingEngineError: a referenced engine is missing.
        SettingsError: ``trust`` is invalid.
        IncompatibleEngineError: an engine that should fit cannot be loaded.
    """
    start = time.perf_counter()
    more = () if trust is None or trust == LOCAL_FILE else _keys(trust)
    archive = ProgramArchive(path, keys=(*keys, *more), local=trust == LOCAL_FILE)
    opened = time.perf_counter()
    try:
        module = _ProgramReader(archive, cache).module()
    except MissingOperator as error:
        remedy = "import the library that defines it, and load the program then"
        raise NoFittingEngineError(str(path), "what stays in torch cannot run here", (str(error),), remedy) from error
    except _BROKEN as error:
        why = f"its content is inconsistent ({type(error).__name__}: {error})"
        raise ProgramContentError(str(path), why) from error
    module.report.file_s = opened - start
    module.report.compile_s = time.perf_counter() - start
    log.info("%s", module.report)
    return module


def _keys(trust: object) -> tuple[PublicKey, ...]:
    """Parse public keys."""
    if isinstance(trust, str) and ":" in trust:
        return parse_keys(trust, "trust")
    raise SettingsError("trust", f"{trust!r} is neither None, {LOCAL_FILE!r} nor public keys as NAME:HEX")


class _ProgramReader:
    """A program file that is being loaded."""

    def __init__(self, archive: ProgramArchive, cache: Cache | None) -> None:
        self._archive, self._cache = archive, cache
        self._path = str(archive.path)
        self._document = parse(archive.read(PROGRAM))
        self._engines = EngineReader(archive, self._document["targets"], cache)
        self._device = _here(torch.device(self._document["device"]))
        self._load_s: dict[int, float] = {}
        options = [self._option(number, one) for number, one in enumerate(self._document["targets"])]
        self._chosen = choose(options, self._path)
        self._target = self._document["targets"][self._chosen.number]

    def module(self) -> CompiledModule:
        """Return the module of the chosen target."""
        entries = {int(one["part"]): self._engines.entry(one) for one in self._target["engines"]}
        parts, interfaces = self._division(entries)
        executable = self._executable(interfaces[0].constants if parts.is_whole else self._constants())
        weights = self._weights(executable)
        call = CallSignature(
            structure.read(self._document["arguments"]),
            structure.read(self._document["output"]),
            signature.read(self._document["signature"]),
        )
        engine = self._engine(entries, executable, weights, parts, interfaces)
        module = CompiledModule(executable, engine, weights, call)
        module.origin = Provenance(
            backend=self._chosen.backend,
            target=self._chosen.target,
            label=self._chosen.label,
            toolchain=self._chosen.toolchain,
            entries=entries,
            division=parts,
            parameters=frozenset(map(str, self._document["parameters"])),
        )
        module.report = self._report(entries, parts)
        module.report.guards = module.guards
        self._keep(entries)
        return module

    def _option(self, number: int, record: Any) -> TargetOption:
        first: Any = next(iter(record["engines"]), None)

        def member(name: str) -> bytes:
            inside = first["members"].get(name)
            return bytes(self._archive.read(inside) if inside else self._engines.entry(first).read(name))

        words = str(record["backend"]), str(record["label"])
        return TargetOption(
            number, *words, dict(record["target"]), dict(record["toolchain"]), member if first else None
        )

    def _executable(self, constants: Mapping[str, torch.Tensor]) -> Executable:
        record = self._document
        interface = parse_interface(record["interface"], record["weight_map"], record["slots"])
        return Executable(
            interface,
            self._device,
            constants,
            frozenset(map(str, record["known"])),
            {
                str(name): Content(str(one["digest"]), str(one["dtype"]), tuple(one["shape"]))
                for name, one in record["sources"].items()
            },
        )

    def _constants(self) -> Mapping[str, torch.Tensor]:
        """Return the constants of what stays in torch; an engine's are in its entry."""
        names = self._document["constants"]
        if not names:
            return {}
        found, kinds = self._tensors(_CONSTANTS, set(names.values())), self._document["interface"]["constants"]
        return {str(own): found[name].to(self._place(kinds[own][1])) for own, name in names.items()}

    def _place(self, kind: Any) -> torch.device:
        return self._device if kind == self._device.type else torch.device(str(kind))

    def _tensors(self, folder: str, names: set[str] | None = None) -> dict[str, torch.Tensor]:
        document = parse(self._archive.read(f"{folder}model_{folder.split('/')[1]}_config.json"))
        chosen = {name: one for name, one in document["config"].items() if names is None or name in names}
        return read_tensors({"config": chosen}, folder, self._archive.read)

    def _weights(self, executable: Executable) -> EngineWeights:
        """Return the weights in the file, fitted to the engines."""
        interface = executable.interface
        transient = {name for slot in interface.slots if slot.transient for name in slot.names}
        state = self._tensors(_WEIGHTS)
        if transient:
            state |= self._tensors(_CONSTANTS, transient)
        placed = {
            name: tensor.to(self._device) if _moves(name, interface) else tensor for name, tensor in state.items()
        }
        needed = {name for slot in interface.slots for name in slot.names}
        chosen = {name: tensor for name, tensor in placed.items() if name in needed}
        try:
            return fit(interface.weights, chosen, known=executable.known, device=self._device)
        except RefitError as error:
            raise WeightMapError(self._path, f"its weights do not fit its engines ({error})") from error

    def _division(self, entries: Mapping[int, Entry]) -> tuple[PartitionedProgram, dict[int, Executable]]:
        from trtcache.partition.partitions import PartitionedProgram as Parts

        record = self._document["division"]
        if record is None:
            return Parts(), {0: self._part(entries[0], self._document["slots"])}
        slots = {number: one["slots"] for number, one in enumerate(record["parts"]) if one["kind"] == "engine"}
        found = {number: self._part(entries[number], names) for number, names in slots.items()}
        interfaces = {number: EngineInterface(one.interface, one.device) for number, one in found.items()}
        return division.read(record, interfaces), found

    def _part(self, entry: Entry, slots: Any) -> Executable:
        """Return the executable of an engine's entry."""
        document, recipes = (json.loads(bytes(entry.read(name))) for name in (INTERFACE, WEIGHT_MAP))
        interface = parse_interface(document, recipes, slots)
        constants = read_constants(bytes(entry.read(CONSTANTS)), document["constants"], self._device)
        if list(constants) != in_order(constants):
            raise ValueError("constants out of order")
        return Executable(interface, self._device, constants, frozenset(), {})

    def _engine(
        self,
        entries: Mapping[int, Entry],
        executable: Executable,
        weights: EngineWeights,
        parts: PartitionedProgram,
        found: Mapping[int, Executable],
    ) -> Engine:
        backend = registry.find(self._chosen.backend, self._device.type)
        engines: dict[int, Engine] = {}
        for number, entry in entries.items():
            own, start = weights if parts.is_whole else weights_of(parts, number, weights), time.perf_counter()
            engines[number] = backend.load_entry(
                entry.read, device=self._device, constants=found[number].constants, weights=own
            )
            self._load_s[number] = time.perf_counter() - start
        if parts.is_whole:
            return engines[0]
        return PartitionedEngine(
            ExecutionPlan(parts, executable.interface, self._device), engines, weights, executable.constants
        )

    def _report(self, entries: Mapping[int, Entry], parts: PartitionedProgram) -> Report:
        reports = [
            PartitionReport(
                key=entry.key,
                outcome="hit" if self._target["engines"][place]["way"] == "store" else "carried",
                reason="",
                weights=len(self._document["interface"]["weights"]),
                fetch_s=entry.load_s,
                load_s=self._load_s[number],
                build_s=entry.build_s,
                path=str(entry.path) if entry.path else self._path,
            )
            for place, (number, entry) in enumerate(entries.items())
        ]
        name, option = str(self._document["name"]), self._chosen
        return Report(name, option.backend, option.label, reports, route="program", left=parts.left)

    def _keep(self, entries: Mapping[int, Entry]) -> None:
        """Store engines if the caller named a cache; the cache itself warns if it cannot."""
        if self._cache is None:
            return
        for entry in entries.values():
            parts = entry.key.document.get("parts")
            if (
                isinstance(parts, dict)
                and "uncacheable" not in parts
                and self._cache.peek(entry.key, counted=False) is None
            ):
                self._cache.keep(entry.key, entry.contents, build_s=entry.build_s, name=entry.name)


def _here(device: torch.device) -> torch.device:
    """Return this process's device of the same type: a program has no device index."""
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _moves(name: str, interface: Any) -> bool:
    """Return whether a weight moves to the engine's device."""
    return any(name in slot.names and slot.device != "cpu" for slot in interface.slots)
