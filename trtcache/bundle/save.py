"""Writes a program with its engines to a file."""

from __future__ import annotations

import os
import zipfile
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from trtcache.backends.members import CONSTANTS, ENGINE, INTERFACE, WEIGHT_MAP, interface_document
from trtcache.bundle import partitions as division
from trtcache.bundle import pytree as structure
from trtcache.bundle.graph import exported, torchs_members
from trtcache.bundle.header import FOLDER, HEADER, PROGRAM, SIGNATURES, Header, Sum, signed
from trtcache.bundle.payload import document, parcels_of
from trtcache.bundle.signature import write as write_signature
from trtcache.bundle.tensors import config, runs
from trtcache.bundle.traced_module import Carrier, parcel_name
from trtcache.config.atomic_write import atomic_write, require_file
from trtcache.digests import json_bytes
from trtcache.errors import ProgramFileError
from trtcache.runtime.provenance import parameters_of
from trtcache.store.format import PRELUDE_BYTES, Draft, parse_prelude
from trtcache.store.writer import write_artifact
from trtcache.weights.archive import aligned_member
from trtcache.weights.slots import weight_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import torch

    from trtcache.bundle.contents import Outgoing
    from trtcache.bundle.payload import Parcel
    from trtcache.bundle.tensors import Run
    from trtcache.config.signing_keys import SecretKey
    from trtcache.lowering.interface import Interface
    from trtcache.store.entry import Entry

ROOT = "program"
CHUNK_BYTES = 1 << 22
_FOLDERS = {"weights": ("data/weights/", "weight_"), "constants": ("data/constants/", "tensor_")}
_NOT_OURS = (
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
    "data/weights/weight_",
    "data/constants/tensor_",
    "data/sample_inputs/model.pt",
)


def save(outgoing: Outgoing, path: Path, *, engines: str, key: SecretKey | None) -> list[Path]:
    """Write a program, and the files that go beside it; return all of them.

    The program appears complete or not at all, and after the files beside it, which appear when all is written.

    Args:
        outgoing: the program.
        path: the file.
        engines: how they travel: ``embed``, ``sidecar`` or ``reference``.
        key: signs it.

    Raises:
        SettingsError: ``engines`` is unknown.
        ProgramFileError: torch cannot write what stays in torch, or a name or argument cannot be written.
        OSError: a file cannot be written, or a folder, device or pipe has its name.
    """
    require_file(path)
    parcels = parcels_of(outgoing, engines, path.stem)
    try:
        program, calls = exported(outgoing, parcels, str(path))
        described = _described(outgoing)
    except ValueError as error:
        raise ProgramFileError(str(path), str(error)) from error
    beside = {one.file: one for each in parcels.values() for one in each if one.way == "file"}
    with atomic_write(path) as temporary, ExitStack() as stack:  # those of the stack get their names first
        files = {name: stack.enter_context(atomic_write(path.with_name(name))) for name in beside}
        sums = {name: _write_beside(file, beside[name].entry, key) for name, file in files.items()}
        with zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
            writer = _Writer(archive)
            writer.add_torchs(torchs_members(program, str(path)))
            writer.add_tensors("weights", program.state_dict, parameters_of(program.state_dict))
            writer.add_constants(program.constants, parcels)
            targets = [writer.add_engines(outgoing, parcels, target, calls) for target in range(len(outgoing.origins))]
            writer.add(PROGRAM, [json_bytes({**described, "targets": targets})])
            header = Header(outgoing.name, writer.sums, sums).write()
            writer.add(HEADER, [header])
            writer.add(SIGNATURES, [signed(header, key)])
        _flush(temporary)
    return [path, *(path.with_name(name) for name in beside)]


class _Writer:
    """Adds members to an archive, and keeps their sizes and digests."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.sums: dict[str, Sum] = {}

    def add(self, name: str, chunks: Iterable[bytes | memoryview], size_bytes: int | None = None) -> None:
        """Add a member; ``size_bytes`` is needed of one that comes in pieces."""
        if size_bytes is None:
            chunks = list(chunks)
            size_bytes = sum(map(len, chunks))
        hasher = blake3()
        with self._archive.open(aligned_member(f"{ROOT}/{name}", size_bytes, self._archive), "w") as member:
            for chunk in chunks:
                hasher.update(chunk)
                member.write(chunk)
        self.sums[name] = Sum(size_bytes, f"b3:{hasher.hexdigest()}")

    def add_torchs(self, members: Mapping[str, bytes]) -> None:
        """Add what torch wrote, but weights, constants and example inputs, of which there are none."""
        for name, content in members.items():
            if not name.startswith(_NOT_OURS):
                self.add(name, [content])
        self.add("data/sample_inputs/model.pt", [b""])

    def add_tensors(
        self, what: str, tensors: Mapping[str, torch.Tensor], parameters: frozenset[str], more: Any = None
    ) -> None:
        """Add weights or constants, and torch's document of them."""
        folder, prefix = _FOLDERS[what]
        members: dict[str, Run] = {f"{prefix}{number}": run for number, run in enumerate(runs(tensors))}
        for name, run in members.items():
            self.add(f"{folder}{name}", run.chunks() if run.size_bytes else [], run.size_bytes)
        said: Any = config(members, parameters)
        document = {"config": {**said["config"], **(more or {})}}
        self.add(f"{folder}model_{what}_config.json", [json_bytes(document)])

    def add_constants(self, tensors: Mapping[str, torch.Tensor], parcels: Mapping[int, Sequence[Parcel]]) -> None:
        """Add constants, among which engines may be."""
        engines, more = {parcel_name(number): each for number, each in parcels.items()}, {}
        plain = {name: one for name, one in tensors.items() if name not in engines}
        for name in set(tensors) - set(plain):
            sent = [one for one in engines[name] if one.way == "constant"]
            member, size_bytes = f"tensor_{name}", sum(one.size_bytes for one in sent)
            self.add(f"data/constants/{member}", (chunk for one in sent for chunk in pieces(one.content)), size_bytes)
            more[name] = _constant(member, size_bytes)
        self.add_tensors("constants", plain, frozenset(), more)

    def add_engines(
        self, outgoing: Outgoing, parcels: Mapping[int, Sequence[Parcel]], target: int, calls: Sequence[int]
    ) -> dict[str, object]:
        """Add what is stored beside a target's engines; return what a file says of the target."""
        origin = outgoing.origins[target]
        engines = []
        for number in sorted(parcels):
            parcel = parcels[number][target]
            members = {} if parcel.way == "file" else self._members(outgoing, parcel)
            engines.append(document(parcel, members, calls.index(number)))
        return {
            "backend": origin.backend,
            "label": origin.label,
            "target": origin.target,
            "toolchain": origin.toolchain,
            "engines": engines,
        }

    def _members(self, outgoing: Outgoing, parcel: Parcel) -> dict[str, str]:
        folder, names = f"{FOLDER}engines/{parcel.target}.{parcel.part}/", {}
        for name, content in _contents(outgoing, parcel).items():
            names[name] = f"{folder}{name}"
            self.add(names[name], [content])
        return names


def _contents(outgoing: Outgoing, parcel: Parcel) -> dict[str, bytes]:
    """Return the members beside an engine; those of a program that could not be cached are made here."""
    entry = parcel.entry
    found = {name: bytes(entry.read(name)) for name in entry.members if name != ENGINE}
    if INTERFACE in found:
        return found
    from safetensors.torch import save as save_tensors

    part = outgoing.division.engines[parcel.part].program if outgoing.division.parts else None
    interface: Interface = part.interface if part else outgoing.executable.interface
    constants = part.constants if part else outgoing.executable.constants
    return {
        **found,
        INTERFACE: json_bytes(interface_document(interface, constants)),
        WEIGHT_MAP: json_bytes(weight_map(interface.weights)),
        CONSTANTS: save_tensors({name: one.detach().cpu().clone() for name, one in constants.items()}),
    }


def _described(outgoing: Outgoing) -> dict[str, object]:
    """Return what a file says of a program beside its engines.

    Raises:
        ValueError: something has no name in JSON.
    """
    executable, call = outgoing.executable, outgoing.call
    return {
        "name": outgoing.name,
        "device": str(executable.device),
        "interface": interface_document(executable.interface, executable.constants),
        "weight_map": weight_map(executable.interface.weights),
        "slots": [list(slot.names) for slot in executable.interface.slots],
        "parameters": sorted(outgoing.parameters & {n for slot in executable.interface.slots for n in slot.names}),
        "known": sorted(executable.known),
        "sources": {name: asdict(content) for name, content in executable.sources.items()},
        "constants": _constant_names(outgoing),
        "arguments": structure.write(call.in_spec),
        "output": structure.write(call.out_spec),
        "signature": write_signature(call.signature),
        "division": None if outgoing.division.is_whole else division.write(outgoing.division),
    }


def _constant_names(outgoing: Outgoing) -> dict[str, str]:
    """Return where the constants of what stays in torch are, by the program's names for them."""
    return {} if outgoing.division.is_whole else dict(Carrier(outgoing, {}).constants)


def _constant(member: str, size_bytes: int) -> dict[str, object]:
    """Return what torch keeps beside a member of plain bytes."""
    return {
        "path_name": member,
        "is_param": False,
        "use_pickle": False,
        "tensor_meta": {
            "dtype": 1,
            "sizes": [{"as_int": size_bytes}],
            "requires_grad": False,
            "device": {"type": "cpu", "index": None},
            "strides": [{"as_int": 1}],
            "storage_offset": {"as_int": 0},
            "layout": 7,
        },
    }


def pieces(content: bytes | memoryview) -> Iterator[memoryview]:
    """Yield bytes a few MiB at a time."""
    view = memoryview(content)
    for at in range(0, len(view), CHUNK_BYTES):
        yield view[at : at + CHUNK_BYTES]


def _write_beside(file: Path, entry: Entry, key: SecretKey | None) -> Sum:
    """Write an entry to a file of its own, as a store keeps it."""
    draft = Draft(
        entry.key, entry.kind, entry.name, entry.created_ns, entry.build_s, dict(entry.provenance), entry.contents
    )
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_artifact(descriptor, draft, key)
        os.fsync(descriptor)
        return _sum(descriptor, str(file))
    finally:
        os.close(descriptor)


def _sum(descriptor: int, path: str) -> Sum:
    """Return the size of an entry's file, and the digest at its beginning, which covers the digests of its members."""
    size_bytes = os.fstat(descriptor).st_size
    prelude = parse_prelude(os.pread(descriptor, PRELUDE_BYTES, 0), size_bytes, path)
    return Sum(size_bytes, f"b3:{prelude.digest.hex()}")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
