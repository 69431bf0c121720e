"""Writing of program files, with weights and constants in torch's archive format."""

from __future__ import annotations

import ctypes
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from blake3 import blake3

from trtcache.backends.protocol import CONSTANTS, ENGINE, INTERFACE, WEIGHT_MAP, interface_document
from trtcache.bundle.archive import (
    FOLDER,
    HEADER,
    PROGRAM,
    SIGNATURES,
    Checksum,
    ProgramHeader,
    sign_header,
)
from trtcache.bundle.engines import EnginePayload, make_payloads, record_of
from trtcache.bundle.formats import describe_program, write_partitions
from trtcache.bundle.graph import export_graph, payload_name, torch_members
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import atomic_write, refuse_special_file
from trtcache.digests import Json, json_bytes
from trtcache.errors import ProgramFileError
from trtcache.runtime.executable import parameters_of
from trtcache.store.format import PRELUDE_BYTES, Draft, parse_prelude
from trtcache.store.writer import write_entry_file
from trtcache.weights.files import TORCH_DTYPES, TORCH_STRIDED, aligned_member
from trtcache.weights.slots import dtype_name, weight_map

if TYPE_CHECKING:
    from trtcache.bundle.export import ProgramContents
    from trtcache.config.signing_keys import SecretKey
    from trtcache.lowering.interface import Interface
    from trtcache.store.contract import Entry

ROOT = "program"
CHUNK_BYTES = 1 << 22
_DTYPE_NUMBERS = {name: number for number, name in TORCH_DTYPES.items()}
_FOLDERS = {"weights": ("data/weights/", "weight_"), "constants": ("data/constants/", "tensor_")}
_WRITTEN_HERE = (
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
    "data/weights/weight_",
    "data/constants/tensor_",
    "data/sample_inputs/model.pt",
)
"""Members of torch's archive that are written here instead."""


def save(contents: ProgramContents, path: Path, *, engines: str, key: SecretKey | None) -> list[Path]:
    """Write a program and its sidecar files; return all paths.

    The program is written atomically, and gets its name after the sidecar files, when all are complete.

    Raises:
        ProgramFileError: torch cannot write what stays in torch, or a name or argument cannot be written.
    """
    refuse_special_file(path)
    payloads = make_payloads(contents, engines, path.name)
    try:
        program, calls, constants = export_graph(contents, payloads, str(path))
        program_document = _program_document(contents, constants)
    except ValueError as error:
        raise ProgramFileError(str(path), str(error)) from error
    sidecars = {payload.file: payload for each in payloads.values() for payload in each if payload.storage == "file"}
    # ``stack`` exits first: sidecar files are renamed first.
    with atomic_write(path) as temporary, ExitStack() as stack:
        files = {name: stack.enter_context(atomic_write(path.with_name(name))) for name in sidecars}
        sums = {name: _write_sidecar(file, sidecars[name].entry, key) for name, file in files.items()}
        with zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
            writer = _Writer(archive)
            for name, content in torch_members(program, str(path)).items():
                if not name.startswith(_WRITTEN_HERE):
                    writer.add(name, [content])
            writer.add("data/sample_inputs/model.pt", [b""])  # torch would pickle inputs that were made for the export
            writer.add_tensors("weights", program.state_dict, parameters_of(program.state_dict))
            writer.add_constants(program.constants, payloads)
            targets = [writer.add_engines(contents, payloads, target, calls) for target in range(len(contents.origins))]
            writer.add(PROGRAM, [json_bytes({**program_document, "targets": targets})])
            header = ProgramHeader(contents.name, writer.sums, sums).write()
            writer.add(HEADER, [header])
            writer.add(SIGNATURES, [sign_header(header, key)])
        _fsync(temporary)
    return [path, *(path.with_name(name) for name in sidecars)]


class _Writer:
    """Add members to an archive, and record their sizes and digests."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.sums: dict[str, Checksum] = {}

    def add(self, name: str, chunks: Iterable[bytes | memoryview], size_bytes: int | None = None) -> None:
        """Add a member. Without ``size_bytes`` all chunks are collected in memory first."""
        if size_bytes is None:
            chunks = list(chunks)
            size_bytes = sum(map(len, chunks))
        hasher = blake3()
        with self._archive.open(aligned_member(f"{ROOT}/{name}", size_bytes, self._archive), "w") as member:
            for chunk in chunks:
                hasher.update(chunk)
                member.write(chunk)
        self.sums[name] = Checksum(size_bytes, f"b3:{hasher.hexdigest()}")

    def add_tensors(
        self,
        what: str,
        tensors: Mapping[str, torch.Tensor],
        parameters: frozenset[str] = frozenset(),
        more: Mapping[str, Json] | None = None,
    ) -> None:
        """Add weights or constants, and torch's records of them and of ``more``."""
        folder, prefix = _FOLDERS[what]
        members = {f"{prefix}{number}": span for number, span in enumerate(storage_ranges(tensors))}
        for name, span in members.items():
            self.add(f"{folder}{name}", span.chunks() if span.size_bytes else [], span.size_bytes)
        document = {"config": {**tensor_records(members, parameters), **(more or {})}}
        self.add(f"{folder}model_{what}_config.json", [json_bytes(document)])

    def add_constants(
        self, tensors: Mapping[str, torch.Tensor], payloads: Mapping[int, Sequence[EnginePayload]]
    ) -> None:
        """Add constants, some of which may be engines."""
        engines, more = {payload_name(number): each for number, each in payloads.items()}, {}
        for name in [one for one in tensors if one in engines]:
            embedded = [memoryview(one.content) for one in engines[name] if one.storage == "constant"]
            member, size_bytes = f"tensor_{name}", sum(map(len, embedded))
            chunks = (one[at : at + CHUNK_BYTES] for one in embedded for at in range(0, len(one), CHUNK_BYTES))
            self.add(f"data/constants/{member}", chunks, size_bytes)
            more[name] = record(member, torch.empty(size_bytes, dtype=torch.uint8, device="meta"), torch.device("cpu"))
        plain = {name: one for name, one in tensors.items() if name not in engines}
        self.add_tensors("constants", plain, more=more)

    def add_engines(
        self,
        contents: ProgramContents,
        payloads: Mapping[int, Sequence[EnginePayload]],
        target: int,
        calls: Sequence[int],
    ) -> dict[str, object]:
        """Add the members of a target's entries that are not engines; return the target's record."""
        origin = contents.origins[target]
        engines = []
        for number in sorted(payloads):
            payload, members = payloads[number][target], dict[str, str]()
            if payload.storage != "file":
                for name, content in _other_members(contents, payload).items():
                    members[name] = f"{FOLDER}engines/{target}.{number}/{name}"
                    self.add(members[name], [content])
            engines.append(record_of(payload, members, calls.index(number)))
        return {
            "backend": origin.backend,
            "label": origin.label,
            "target": origin.target,
            "toolchain": origin.toolchain,
            "engines": engines,
        }


def _other_members(contents: ProgramContents, payload: EnginePayload) -> dict[str, bytes]:
    """Return an entry's members except the engine; those that an uncached entry lacks are created here."""
    entry = payload.entry
    found = {name: bytes(entry.read(name)) for name in entry.members if name != ENGINE}
    if INTERFACE in found:
        return found
    from safetensors.torch import save as save_tensors

    part = contents.division.engines[payload.partition].program if contents.division.parts else None
    interface: Interface = part.interface if part else contents.executable.interface
    constants = part.constants if part else contents.executable.constants
    return {
        **found,
        INTERFACE: json_bytes(interface_document(interface, constants)),
        WEIGHT_MAP: json_bytes(weight_map(interface.weights)),
        CONSTANTS: save_tensors({name: one.detach().cpu().clone() for name, one in constants.items()}),
    }


def _program_document(contents: ProgramContents, constants: Mapping[str, str]) -> dict[str, object]:
    """Return the document without engines; ``constants`` are torch's names of those that stay in torch."""
    executable = contents.executable
    return {
        **describe_program(executable, contents.call),
        "name": contents.name,
        "device": str(executable.device),
        "parameters": sorted(contents.parameters & {n for slot in executable.interface.slots for n in slot.names}),
        "constants": {} if contents.division.is_one_engine else constants,
        "division": None if contents.division.is_one_engine else write_partitions(contents.division),
    }


def _write_sidecar(file: Path, entry: Entry, key: SecretKey | None) -> Checksum:
    """Write an entry to its own file, in the store's format; return its size and the digest of its prelude.

    That digest covers the members' digests.
    """
    draft = Draft(
        entry.key, entry.kind, entry.name, entry.created_ns, entry.build_s, dict(entry.provenance), entry.contents
    )
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_entry_file(descriptor, draft, key)
        os.fsync(descriptor)
        size_bytes = os.fstat(descriptor).st_size
        prelude = parse_prelude(os.pread(descriptor, PRELUDE_BYTES, 0), size_bytes, str(file))
        return Checksum(size_bytes, f"b3:{prelude.digest.hex()}")
    finally:
        os.close(descriptor)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@frozen_dataclass
class StorageRange:
    """A range of one storage that tensors of one dtype cover without gaps.

    Attributes:
        tensors: the tensors by name.
        start, stop: the range in elements.
    """

    tensors: Mapping[str, torch.Tensor]
    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        """Its size in bytes."""
        tensor = next(iter(self.tensors.values()))
        return (self.stop - self.start) * tensor.itemsize

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes in chunks of a few MiB."""
        tensor = next(iter(self.tensors.values()))
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        whole.set_(tensor.untyped_storage(), self.start, (self.stop - self.start,), (1,))
        step = max(1, CHUNK_BYTES // tensor.itemsize)
        for at in range(0, len(whole), step):
            on_cpu = whole[at : at + step].cpu().view(torch.uint8)
            buffer = (ctypes.c_ubyte * len(on_cpu)).from_address(on_cpu.data_ptr())
            buffer._tensor = on_cpu  # type: ignore[attr-defined]  # keeps its memory alive
            yield memoryview(buffer).cast("B")


def storage_ranges(tensors: Mapping[str, torch.Tensor]) -> list[StorageRange]:
    """Return the ranges to write for tensors: shared memory is written once."""
    storages: dict[tuple[int, torch.dtype], list[tuple[int, int, str]]] = defaultdict(list)
    plain = {name: tensor.detach().resolve_conj().resolve_neg() for name, tensor in tensors.items()}
    empty = []
    for name, tensor in plain.items():
        if tensor.numel() == 0:
            empty.append(StorageRange({name: tensor}, 0, 0))
            continue
        start = int(tensor.storage_offset())
        last = start + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        storages[tensor.untyped_storage().data_ptr(), tensor.dtype].append((start, last + 1, name))
    found = [span for places in storages.values() for span in _merge(sorted(places), plain)]
    return [*found, *empty]


def _merge(places: list[tuple[int, int, str]], tensors: Mapping[str, torch.Tensor]) -> Iterator[StorageRange]:
    """Join overlapping ranges."""
    start, stop, names = places[0][0], 0, list[str]()
    for begin, end, name in places:
        if begin >= stop and names:
            yield StorageRange({tensor: tensors[tensor] for tensor in names}, start, stop)
            start, stop, names = begin, 0, []
        stop = max(stop, end)
        names.append(name)
    yield StorageRange({tensor: tensors[tensor] for tensor in names}, start, stop)


def tensor_records(ranges: Mapping[str, StorageRange], parameters: frozenset[str]) -> dict[str, Json]:
    """Return torch's records for members by name: the member, and the tensor's layout in it."""
    records: dict[str, Json] = {}
    for member, span in ranges.items():
        for name, tensor in span.tensors.items():
            offset = int(tensor.storage_offset()) - span.start if tensor.numel() else 0
            records[name] = record(member, tensor, tensor.device, offset, is_parameter=name in parameters)
    return records


def record(
    member: str, tensor: torch.Tensor, device: torch.device, offset: int = 0, *, is_parameter: bool = False
) -> Json:
    """Return torch's record for a tensor in a member, ``offset`` elements from its start."""
    return {
        "path_name": member,
        "is_param": is_parameter,
        "use_pickle": False,
        "tensor_meta": {
            "dtype": _DTYPE_NUMBERS[dtype_name(tensor.dtype)],
            "sizes": [{"as_int": size} for size in tensor.shape],
            "requires_grad": False,
            "device": {"type": device.type, "index": device.index},
            "strides": [{"as_int": step} for step in tensor.stride()],
            "storage_offset": {"as_int": offset},
            "layout": TORCH_STRIDED,
        },
    }
