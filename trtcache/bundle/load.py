"""Loads a program with its engines: verified first, then the target that fits, then engines, weights and a module."""

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
from trtcache.bundle.engines import CarriedEngines
from trtcache.bundle.header import LOCAL_FILE, PROGRAM, parse
from trtcache.bundle.partitions import Border
from trtcache.bundle.target_choice import Offer, choose
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
from trtcache.lowering.contents import Content
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.constants import in_order, read_constants
from trtcache.runtime.executable import Executable, interface_of
from trtcache.runtime.executor import Schedule, weights_of
from trtcache.runtime.provenance import Origin
from trtcache.runtime.signature import CallSignature
from trtcache.runtime.steps import Plan
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trtcache.backends.protocol import Engine
    from trtcache.cache import Cache
    from trtcache.config.trust import PublicKey
    from trtcache.partition.partitions import Division
    from trtcache.store.entry import Entry
    from trtcache.weights.slots import EngineWeights

log = logging.getLogger(__name__)

_WEIGHTS, _CONSTANTS = "data/weights/", "data/constants/"
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, AssertionError)
"""What reading a document raises that is not what it should be; RuntimeError: torch refuses a size or a type."""


def load(path: Path, *, cache: Cache | None, keys: Sequence[PublicKey], trust: str | None) -> CompiledModule:
    """Return the compiled module in a file.

    Args:
        path: the file.
        cache: where its engines are stored, and where those that it only refers to are looked for.
        keys: whose signatures count.
        trust: None, ``local-file``, or public keys that count as well.

    Raises:
        NotAProgramError: it is no program with engines.
        DamagedProgramError: it is not as it was written; the class says in what way.
        ProgramVersionError: it is of a later format.
        UntrustedProgramError: nobody vouches for it.
        NoFittingEngineError: none of its engines can run here.
        MissingEngineError: it refers to an engine that is not there.
        SettingsError: ``trust`` is neither.
        IncompatibleEngineError: an engine that should fit cannot be loaded.
    """
    start = time.perf_counter()
    more = () if trust is None or trust == LOCAL_FILE else _keys(trust)
    archive = ProgramArchive(path, keys=(*keys, *more), local=trust == LOCAL_FILE)
    opened = time.perf_counter()
    try:
        module = _Reading(archive, cache).module()
    except MissingOperator as error:
        remedy = "import the library that defines it, and load the program then"
        raise NoFittingEngineError(str(path), "what stays in torch cannot run here", (str(error),), remedy) from error
    except _BROKEN as error:
        why = f"what it says does not fit together ({type(error).__name__}: {error})"
        raise ProgramContentError(str(path), why) from error
    module.report.file_s = opened - start
    module.report.compile_s = time.perf_counter() - start
    log.info("%s", module.report)
    return module


def _keys(trust: object) -> tuple[PublicKey, ...]:
    """Return keys that were given as text.

    Raises:
        SettingsError: they are none.
    """
    if isinstance(trust, str) and ":" in trust:
        return parse_keys(trust, "trust")
    raise SettingsError("trust", f"{trust!r} is neither None, {LOCAL_FILE!r} nor public keys as NAME:HEX")


class _Reading:
    """One file that is being loaded."""

    def __init__(self, archive: ProgramArchive, cache: Cache | None) -> None:
        self._archive, self._cache = archive, cache
        self._path = str(archive.path)
        self._said = parse(archive.read(PROGRAM))
        self._engines = CarriedEngines(archive, self._said["targets"], cache)
        self._device = _here(torch.device(self._said["device"]))
        self._load_s: dict[int, float] = {}
        offers = [self._offer(number, one) for number, one in enumerate(self._said["targets"])]
        self._offer_taken = choose(offers, self._path)
        self._target = self._said["targets"][self._offer_taken.number]

    def module(self) -> CompiledModule:
        """Return the module of the target that was chosen."""
        entries = {int(one["part"]): self._engines.entry(one) for one in self._target["engines"]}
        parts, borders = self._division(entries)
        executable = self._executable(borders[0].constants if parts.is_whole else self._constants())
        weights = self._weights(executable)
        call = CallSignature(
            structure.read(self._said["arguments"]),
            structure.read(self._said["output"]),
            signature.read(self._said["signature"]),
        )
        engine = self._engine(entries, executable, weights, parts, borders)
        module = CompiledModule(executable, engine, weights, call)
        module.origin = Origin(
            backend=self._offer_taken.backend,
            target=self._offer_taken.target,
            label=self._offer_taken.label,
            toolchain=self._offer_taken.toolchain,
            entries=entries,
            division=parts,
            parameters=frozenset(map(str, self._said["parameters"])),
        )
        module.report = self._report(entries, parts)
        module.report.guards = module.guards
        self._keep(entries)
        return module

    def _offer(self, number: int, said: Any) -> Offer:
        first: Any = next(iter(said["engines"]), None)

        def member(name: str) -> bytes:
            inside = first["members"].get(name)
            return bytes(self._archive.read(inside) if inside else self._engines.entry(first).read(name))

        words = str(said["backend"]), str(said["label"])
        return Offer(number, *words, dict(said["target"]), dict(said["toolchain"]), member if first else None)

    def _executable(self, constants: Mapping[str, torch.Tensor]) -> Executable:
        said = self._said
        interface = interface_of(said["interface"], said["weight_map"], said["slots"])
        return Executable(
            interface,
            self._device,
            constants,
            frozenset(map(str, said["known"])),
            {
                str(name): Content(str(one["digest"]), str(one["dtype"]), tuple(one["shape"]))
                for name, one in said["sources"].items()
            },
        )

    def _constants(self) -> Mapping[str, torch.Tensor]:
        """Return the constants of what stays in torch; those of engines are beside them."""
        names = self._said["constants"]
        if not names:
            return {}
        found, kinds = self._tensors(_CONSTANTS, set(names.values())), self._said["interface"]["constants"]
        return {str(own): found[name].to(self._place(kinds[own][1])) for own, name in names.items()}

    def _place(self, kind: Any) -> torch.device:
        return self._device if kind == self._device.type else torch.device(str(kind))

    def _tensors(self, folder: str, names: set[str] | None = None) -> dict[str, torch.Tensor]:
        document = parse(self._archive.read(f"{folder}model_{folder.split('/')[1]}_config.json"))
        chosen = {name: one for name, one in document["config"].items() if names is None or name in names}
        return read_tensors({"config": chosen}, folder, self._archive.read)

    def _weights(self, executable: Executable) -> EngineWeights:
        """Return the weights in the file, fitted to the engines.

        Raises:
            WeightMapError: they do not fit.
        """
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
            raise WeightMapError(self._path, f"its weights are not those that its engines take ({error})") from error

    def _division(self, entries: Mapping[int, Entry]) -> tuple[Division, dict[int, Executable]]:
        from trtcache.partition.partitions import Division as Parts

        said = self._said["division"]
        if said is None:
            return Parts(), {0: self._part(entries[0], self._said["slots"])}
        slots = {number: one["slots"] for number, one in enumerate(said["parts"]) if one["kind"] == "engine"}
        found = {number: self._part(entries[number], names) for number, names in slots.items()}
        borders = {number: Border(one.interface, one.device) for number, one in found.items()}
        return division.read(said, borders), found

    def _part(self, entry: Entry, slots: Any) -> Executable:
        """Return what is stored beside an engine."""
        document, recipes = (json.loads(bytes(entry.read(name))) for name in (INTERFACE, WEIGHT_MAP))
        interface = interface_of(document, recipes, slots)
        constants = read_constants(bytes(entry.read(CONSTANTS)), document["constants"], self._device)
        if list(constants) != in_order(constants):
            raise ValueError("constants out of order")
        return Executable(interface, self._device, constants, frozenset(), {})

    def _engine(
        self,
        entries: Mapping[int, Entry],
        executable: Executable,
        weights: EngineWeights,
        parts: Division,
        found: Mapping[int, Executable],
    ) -> Engine:
        backend = registry.find(self._offer_taken.backend, self._device.type)
        engines: dict[int, Engine] = {}
        for number, entry in entries.items():
            own, start = weights if parts.is_whole else weights_of(parts, number, weights), time.perf_counter()
            engines[number] = backend.load_entry(
                entry.read, device=self._device, constants=found[number].constants, weights=own
            )
            self._load_s[number] = time.perf_counter() - start
        if parts.is_whole:
            return engines[0]
        return Schedule(Plan(parts, executable.interface, self._device), engines, weights, executable.constants)

    def _report(self, entries: Mapping[int, Entry], parts: Division) -> Report:
        reports = [
            PartitionReport(
                key=entry.key,
                outcome="hit" if self._target["engines"][place]["way"] == "store" else "carried",
                reason="",
                weights=len(self._said["interface"]["weights"]),
                fetch_s=entry.load_s,
                load_s=self._load_s[number],
                build_s=entry.build_s,
                path=str(entry.path) if entry.path else self._path,
            )
            for place, (number, entry) in enumerate(entries.items())
        ]
        name, offer = str(self._said["name"]), self._offer_taken
        return Report(name, offer.backend, offer.label, reports, route="program", left=parts.left)

    def _keep(self, entries: Mapping[int, Entry]) -> None:
        """Store engines, if the caller named a cache; that it cannot be done is the cache's own warning."""
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
    """Return this process's device of the same kind: a program is for no index."""
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _moves(name: str, interface: Any) -> bool:
    """Say whether a weight is to be where the engine is."""
    return any(name in slot.names and slot.device != "cpu" for slot in interface.slots)
