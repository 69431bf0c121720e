"""Loads a program with its engines: verified first, then the target that fits, then engines, weights and a module."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import time
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends import registry
from trtcache.backends.members import CONSTANTS, ENGINE, INTERFACE, WEIGHT_MAP
from trtcache.errors import (
    CorruptBlobError,
    FormatVersionError,
    MissingEngineError,
    NoFittingEngineError,
    ProgramContentError,
    ProgramNamesError,
    RefitError,
    SettingsError,
    TamperedProgramError,
    WeightMapError,
)
from trtcache.lowering.contents import Content
from trtcache.portable import division, signature, structure
from trtcache.portable.archive import ProgramArchive
from trtcache.portable.division import Border
from trtcache.portable.fitness import Offer, choose
from trtcache.portable.header import LOCAL_FILE, PROGRAM, parse
from trtcache.portable.parcels import SIDECAR
from trtcache.portable.tensors import read as read_tensors
from trtcache.portable.torch_graph import MissingOperator
from trtcache.runtime import CompiledModule, PartitionReport, Report
from trtcache.runtime.constants import in_order, read_constants
from trtcache.runtime.executable import Executable, interface_of
from trtcache.runtime.origin import Origin
from trtcache.runtime.schedule import Schedule, weights_of
from trtcache.runtime.signature import CallSignature
from trtcache.runtime.steps import Plan
from trtcache.store.entry import Entry
from trtcache.store.reader import ArtifactFile
from trtcache.trust import parse_keys
from trtcache.values import CacheKey, hash_bytes
from trtcache.weights import fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trtcache.backends.protocol import Engine
    from trtcache.cache import Cache
    from trtcache.partition.division import Division
    from trtcache.trust import PublicKey
    from trtcache.weights import Fitted

log = logging.getLogger(__name__)

_MODEL = "models/model.json"
_WEIGHTS, _CONSTANTS = "data/weights/", "data/constants/"
_PLACEHOLDER = "torch.ops.trtcache.execute_engine.default"
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
    more = () if trust in {None, LOCAL_FILE} else _keys(trust)
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
        self._texts: list[str] | None = None
        self._said = parse(archive.read(PROGRAM))
        self._device = _here(torch.device(self._said["device"]))
        self._load_s: dict[int, float] = {}
        offers = [self._offer(number, one) for number, one in enumerate(self._said["targets"])]
        self._offer_taken = choose(offers, self._path)
        self._target = self._said["targets"][self._offer_taken.number]

    def module(self) -> CompiledModule:
        """Return the module of the target that was chosen."""
        entries = {int(one["part"]): self._entry(one) for one in self._target["engines"]}
        executable = self._executable()
        weights = self._weights(executable)
        call = CallSignature(
            structure.read(self._said["arguments"]),
            structure.read(self._said["output"]),
            signature.read(self._said["signature"]),
        )
        parts, borders = self._division(entries)
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
        self._keep(entries)
        return module

    def _offer(self, number: int, said: Any) -> Offer:
        first: Any = next(iter(said["engines"]), None)

        def member(name: str) -> bytes:
            inside = first["members"].get(name)
            return bytes(self._archive.read(inside) if inside else self._entry(first).read(name))

        words = str(said["backend"]), str(said["label"])
        return Offer(number, *words, dict(said["target"]), dict(said["toolchain"]), member if first else None)

    def _entry(self, said: Any) -> Entry:
        """Return a stored engine with all that is beside it."""
        if said["way"] == "file":
            return self._beside(str(said["file"]), CacheKey.of_document(said["key"]))
        key = CacheKey.of_document(said["key"])
        if said["way"] == "store":
            return self._referred(key)
        contents: dict[str, Any] = {name: self._archive.read(member) for name, member in said["members"].items()}
        contents[ENGINE] = self._embedded(said)
        return Entry(
            key=key,
            kind=str(said["kind"]),
            name=None if said["name"] is None else str(said["name"]),
            build_s=float(said["build_s"]),
            created_ns=int(said["created_ns"]),
            provenance={str(name): str(text) for name, text in said["provenance"].items()},
            outcome="hit",
            reason=None,
            path=None,
            load_s=0.0,
            contents=contents,
        )

    def _embedded(self, said: Any) -> bytes | memoryview:
        """Return an engine that is in the file, compared with its digest."""
        content: bytes | memoryview
        if said["way"] == "text":
            content = self._text(int(said["node"]), self._place_of(said))
        elif said["way"] == "constant":
            whole = self._archive.read(f"{_CONSTANTS}tensor_trtcache_engine_{int(said['part'])}")
            begin, size = int(said["offset"]), int(said["size_bytes"])
            content = whole[begin : begin + size]
        else:
            raise ValueError(f"an engine that travels as {said['way']!r:.20}")
        if f"b3:{hash_bytes(content).hex()}" != said["digest"]:
            raise TamperedProgramError(self._path, f"the engine of part {said['part']} is not the one of its digest")
        return content

    def _place_of(self, said: Any) -> int:
        """Return which of the targets an engine is of: in the graph they are in that order."""
        for place, target in enumerate(self._said["targets"]):
            if any(one is said for one in target["engines"]):
                return place
        raise ValueError("an engine of no target")

    def _text(self, node: int, place: int) -> bytes:
        """Return an engine that is text in the graph."""
        if self._texts is None:
            model = json.loads(bytes(self._archive.read(_MODEL)).decode())
            nodes = [one for one in model["graph_module"]["graph"]["nodes"] if one["target"] == _PLACEHOLDER]
            self._texts = [_argument(one, "engine") for one in nodes]
        try:
            return base64.b64decode(self._texts[node].split(",")[place], validate=True)
        except binascii.Error as error:
            raise ValueError(f"an engine that is no text: {error}") from error

    def _beside(self, name: str, key: CacheKey) -> Entry:
        """Return the entry in a file beside the program.

        Raises:
            ProgramNamesError: its name would be a path.
            MissingEngineError: it is not there, or cannot be used.
            TamperedProgramError: it is another.
        """
        if not SIDECAR.fullmatch(name):
            raise ProgramNamesError(self._path, f"a file beside it is called {name!r:.80}, which none is")
        said, beside = self._archive.header.beside.get(name), self._archive.path.with_name(name)
        try:
            file = ArtifactFile(beside)
            contents: Any = file.load(mapped=True)
        except FileNotFoundError as error:
            why = f"its engines are in {name}, which has to lie beside it"
            raise MissingEngineError(self._path, f"{why}; copy that file as well") from error
        except (CorruptBlobError, FormatVersionError, OSError) as error:
            raise MissingEngineError(self._path, f"the file of its engines cannot be used: {error}") from error
        header, digest = file.header, f"b3:{file.prelude.digest.hex()}"
        if said is None or (header.file_bytes, digest) != (said.size_bytes, said.digest) or header.key != key:
            raise TamperedProgramError(self._path, f"{name} is not the file that was written with it")
        found = Entry(
            key, header.kind, header.name, header.build_s, header.created_ns, header.provenance,
            "hit", None, beside, 0.0, contents,
        )  # fmt: skip
        file.close()
        return found

    def _referred(self, key: CacheKey) -> Entry:
        """Return the entry of a key from a store.

        Raises:
            MissingEngineError: there is none.
        """
        from trtcache.cache import Cache

        store = self._cache if self._cache is not None else Cache()
        found = store.peek(key)
        if found is None:
            why = f"it refers to engine {key.digest[:16]}, which is not in {store.config.root}"
            remedy = "name the cache that has it (cache=, TRTCACHE_DIR), or export with engines='embed'"
            raise MissingEngineError(self._path, f"{why}; {remedy}")
        return found

    def _executable(self) -> Executable:
        said = self._said
        interface = interface_of(said["interface"], said["weight_map"], said["slots"])
        return Executable(
            interface,
            self._device,
            self._constants(),
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
        found = self._tensors(_CONSTANTS, set(names.values()))
        return {str(own): found[name].to(self._device) for own, name in names.items()}

    def _tensors(self, folder: str, names: set[str] | None = None) -> dict[str, torch.Tensor]:
        document = parse(self._archive.read(f"{folder}model_{folder.split('/')[1]}_config.json"))
        chosen = {name: one for name, one in document["config"].items() if names is None or name in names}
        return read_tensors({"config": chosen}, folder, self._archive.read)

    def _weights(self, executable: Executable) -> Fitted:
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
        from trtcache.partition.division import Division as Parts

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
        weights: Fitted,
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


def _argument(node: Any, name: str) -> str:
    for one in node["inputs"]:
        if one["name"] == name:
            return str(one["arg"]["as_string"])
    raise ValueError(f"a call of an engine without {name}")
