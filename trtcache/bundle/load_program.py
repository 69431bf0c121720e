"""Loading of program files without torch: one AOTInductor package for the CPU, its weights, and its call signature."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.backends import host
from trtcache.backends.fitness import StoredTarget
from trtcache.backends.host import (
    Assumptions,
    HostEngine,
    HostFitness,
    HostWeights,
    check_arrays,
    library_of,
    libtorch,
    make_weights,
)
from trtcache.backends.protocol import CONSTANTS, ENGINE, INTERFACE
from trtcache.bundle.archive import BROKEN, PROGRAM, ProgramArchive, choose, parse, read_signature
from trtcache.bundle.engines import EngineReader, report_engine
from trtcache.config.environment import require_torch_allowed
from trtcache.config.threads import cores
from trtcache.digests import Digest
from trtcache.errors import (
    ExportError,
    IncompatibleEngineError,
    ProgramContentError,
    RefitError,
    RunError,
    WeightMapError,
    WeightsFileError,
)
from trtcache.lowering.interface import Content, Interface, look_up, parse_sources
from trtcache.runtime.argument_order import UnknownContainerError, read_nodes, type_without_torch
from trtcache.runtime.executable import in_order, parse_interface
from trtcache.runtime.program import PlainSignature, Program, ProgramWeights, Renewed
from trtcache.runtime.report import Report
from trtcache.weights.arrays import HostArray, UnreadableArrayError, array_of, bytes_of, contiguous
from trtcache.weights.files import (
    HAS_ENGINES,
    LENGTH_BYTES,
    TensorRecord,
    array_at,
    array_in,
    is_without_torch,
    read_arrays,
)

if TYPE_CHECKING:
    from trtcache.backends.host import LibTorch
    from trtcache.cache import Cache
    from trtcache.store.contract import Entry

_ALIGNED_BYTES = 16


class TorchNeeded(Exception):  # noqa: N818  # the caller handles it: it loads the program with torch
    """A program that only torch can load; the message says why."""


def load_program(archive: ProgramArchive, cache: Cache | None, outputs: str | None) -> Program:
    """Return the program of a verified file.

    Args:
        archive: the file.
        cache: a cache to store its engine in, and to look up a referenced one.
        outputs: the library whose arrays calls return, such as NumPy; None: that of the inputs.

    Raises:
        TorchNeeded: only torch can load it.
        DamagedProgramError: its content is inconsistent.
        NoFittingEngineError: none of its engines can run here.
        MissingEngineError: the referenced engine or sidecar file is missing.
    """
    try:
        return _load(archive, cache, outputs)
    except (IncompatibleEngineError, UnknownContainerError) as error:
        raise TorchNeeded(str(error)) from error
    except RunError:  # a RuntimeError, but the content of the file is not its reason
        raise
    except BROKEN as error:
        why = f"its content is inconsistent ({type(error).__name__}: {error})"
        raise ProgramContentError(str(archive.path), why) from error


def _load(archive: ProgramArchive, cache: Cache | None, outputs: str | None) -> Program:
    document = parse(archive.read(PROGRAM))
    _require_plain(document)
    targets = document["targets"]
    engines = EngineReader(archive, targets, cache)
    options = [
        StoredTarget(
            number, str(one["backend"]), str(one["label"]), dict(one["target"]), dict(one["toolchain"]), _no_member
        )
        for number, one in enumerate(targets)
    ]
    path = str(archive.path)
    chosen = choose(options, path, lambda _: HostFitness())
    (record,) = targets[chosen.number]["engines"]
    entry = engines.entry(record)
    interface = parse_interface(document["interface"], document["weight_map"], document["slots"])
    records = archive.weight_records(interface)
    state = {name: read_array(one, archive.read) for name, one in records.items()}
    program = assemble(document, interface, entry, state, path, outputs)
    weights = len(interface.weights)
    partition = report_engine(entry, record["way"], weights=weights, load_s=program.load_s, path=path)
    name = str(document["name"])
    program.report = Report(
        name, chosen.backend, chosen.label, [partition], route="program", torch="not used", guards=program.guards
    )
    engines.keep(entry)
    return program


def _require_plain(document: Any) -> None:
    """Check that the program is one AOTInductor package for the CPU."""
    if document["division"] is not None:
        raise TorchNeeded("it is not a single engine")
    for target in document["targets"]:
        if target["backend"] != host.NAME or target["target"]["device"] != "cpu":
            raise TorchNeeded(f"it has an engine for {target['label']}")
        if len(target["engines"]) != 1:
            raise TorchNeeded("it runs in torch")
    interface = document["interface"]
    devices = {one["device"] for one in (*interface["inputs"], *interface["slots"], *interface["weights"])}
    devices |= {device for _, device in interface["constants"].values()}
    if (devices | {document["device"]}) != {"cpu"}:
        raise TorchNeeded("it is not on the CPU alone")


def assemble(
    document: Any,
    interface: Interface,
    entry: Entry,
    state: Mapping[str, HostArray],
    path: str,
    outputs: str | None,
) -> Program:
    """Return the program of a document, with an engine of its own and these weights; its report is not set.

    Args:
        document: the document of the program, as in a program file.
        interface: the interface in it.
        entry: the verified entry of its engine.
        state: the model's weights by name.
        path: the file, for messages.
        outputs: the library of outputs; None: that of the inputs.

    Raises:
        IncompatibleEngineError: the engine needs torch's loader.
        WeightMapError: the weights do not fit.
        ValueError: the document is inconsistent; LookupError and TypeError are possible too.
    """
    written = json.loads(bytes(entry.read(INTERFACE)))
    constants = _read_constants(bytes(entry.read(CONSTANTS)), written["constants"])
    call = PlainSignature(
        read_nodes(document["arguments"], type_without_torch),
        read_nodes(document["output"], type_without_torch),
        read_signature(document["signature"]),
    )
    assumptions = Assumptions.of(entry.read)
    start = time.perf_counter()
    library = libtorch()
    library.init_threads()
    known = frozenset(map(str, document["known"]))
    try:
        checked = check_arrays(interface.weights, state, known=known, library=library)
    except RefitError as error:
        raise WeightMapError(path, f"its weights do not fit its engines ({error})") from error
    weights, _ = make_weights(interface.weights, checked, library)
    is_mutated = any(slot.mutated for slot in interface.slots)
    package = library_of(entry.read(ENGINE))
    engine = HostEngine(package, constants, weights, calls=1 if is_mutated else cores(), assumptions=assumptions)
    sources = parse_sources(document["sources"])
    live = ProgramWeights(engine, weights, library, _Renewal(interface, known, sources, library), is_mutated=is_mutated)
    return Program(interface, call, live, load_s=time.perf_counter() - start, outputs=outputs)


def read_array(record: TensorRecord, content_of: Callable[[str], memoryview]) -> HostArray:
    """Return a tensor of torch's archive as an array; ``content_of`` returns the bytes of a member.

    Raises:
        ValueError: it is not within its member.
    """
    content = content_of(record.member)
    record.check_bytes(len(content))
    return array_in(content, record.dtype, record.shape, record.strides, record.offset, alignment=_ALIGNED_BYTES)


def _no_member(name: str) -> bytes:
    """Refuse to read a member of an engine: only the choice of a TensorRT plan reads one."""
    raise LookupError(name)


def _read_constants(content: bytes, written: Mapping[str, tuple[str, str]]) -> dict[str, HostArray]:
    constants: dict[str, HostArray] = {}
    if not written:
        return constants
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.loads(content[LENGTH_BYTES:start])
    data = memoryview(bytearray(content[start:]))
    for name in in_order(written):  # JSON objects are sorted by name: c10 comes before c2
        array = array_at(header[name], data)
        if str(Digest.of(bytes_of(array))) != written[name][0]:
            raise ValueError(f"constant {name} does not match the key")
        constants[name] = array
    return constants


class _Renewal:
    """The ``renew`` of ``ProgramWeights``: makes the engine with other weights that a refit switches to."""

    def __init__(
        self, interface: Interface, known: frozenset[str], sources: Mapping[str, Content], library: LibTorch
    ) -> None:
        self._interface, self._known, self._sources, self._library = interface, known, sources, library

    def __call__(self, engine: HostEngine, current: HostWeights, given: Any) -> Renewed:
        """Return an engine with the given weights, in place of one with the current ones."""
        state = self._read(given)
        needed = self._interface.weights
        checked = check_arrays(needed, state, known=self._known, library=self._library, keep=True)
        weights, changed = make_weights(needed, checked, self._library, current)
        kept = [(weights[name], current[name]) for name in checked.kept]
        return Renewed(engine.refit(weights), weights, changed, kept)

    def _read(self, given: Any) -> dict[str, HostArray]:
        """Return given weights as arrays by name.

        Raises:
            RefitError: one cannot be read, or the program has the tensor as a constant with another value.
        """
        values: Mapping[str, Any]
        torch = sys.modules.get("torch")
        if isinstance(given, (str, os.PathLike)):
            constants = values = self._read_file(Path(given))
        elif torch is not None and isinstance(given, torch.nn.Module):
            values = given.state_dict(keep_vars=True)
            constants = {name: _attribute(given, name) for name in self._sources}
        elif hasattr(given, "items"):
            constants = values = dict(given)
        else:
            raise TypeError(f"refit takes a path, a torch.nn.Module or its state_dict, not {type(given).__name__}")
        if strange := tuple(repr(name) for name in values if not isinstance(name, str)):
            raise RefitError(unexpected=strange)
        extra = "_extra_state"  # the result of a module's get_extra_state is not a weight
        arrays = self._arrays(
            {name: one for name, one in values.items() if name in self._known or not name.endswith(extra)}
        )
        self._check_constants(arrays if constants is values else constants)
        return arrays

    def _arrays(self, values: Mapping[str, Any]) -> dict[str, HostArray]:
        arrays: dict[str, HostArray] = {}
        wrong: list[str] = []
        for name, value in values.items():
            try:
                array = array_of(value)
            except UnreadableArrayError as error:
                wrong.append(f"{name} ({error.found})")
                continue
            if array is None:
                wrong.append(f"{name} (a {type(value).__name__}, not a tensor)")
            else:
                arrays[name] = array
        if wrong:
            raise RefitError(mismatched=tuple(wrong))
        return arrays

    def _read_file(self, path: Path) -> Mapping[str, Any]:
        if is_without_torch(path):
            return read_arrays(path)
        from trtcache.bundle.file_alias import MappedPt2File  # it imports this module

        with suppress(TorchNeeded, *BROKEN):
            try:
                file = MappedPt2File(path)
                if file.has_engines:
                    raise WeightsFileError(str(path), HAS_ENGINES)
                return file.arrays(file.names)
            except ExportError as error:
                raise WeightsFileError(str(path), error.why) from error
        require_torch_allowed(str(path), "it is not a .safetensors file, nor one of torch.export.save")
        from trtcache.frontends.weight_files import read_weights

        return read_weights(path)

    def _check_constants(self, values: Mapping[str, Any]) -> None:
        arrays = self._arrays({name: values[name] for name in self._sources if values.get(name) is not None})
        changed = [
            f"{name} (a constant of the program; compile the new model instead)"
            for name, array in arrays.items()
            if _content_of(array, self._library) != self._sources[name]
        ]
        if changed:
            raise RefitError(mismatched=tuple(changed))


def _content_of(array: HostArray, library: LibTorch) -> Content:
    plain = array if array.strides == contiguous(array.shape) else library.copy(array, contiguous(array.shape))
    return Content(str(Digest.of(bytes_of(plain))), plain.dtype, plain.shape)


def _attribute(module: object, name: str) -> Any:
    value = look_up(module, name)
    torch = sys.modules["torch"]
    return value if isinstance(value, torch.Tensor) else None
