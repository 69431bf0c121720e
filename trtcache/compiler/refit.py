"""Refits without a compiled module: new weights for a program in a file, and for a stored entry.

The key does not depend on the weights, unless they are frozen in the engine, so the engine is found and nothing is
built. The archive is copied member by member with the bytes of weights replaced: nothing is exported or lowered, and
one member is in memory at a time.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trtcache.backends import registry
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import atomic_write
from trtcache.errors import IncompatibleEngineError, ModelFileError, RefitError
from trtcache.frontends.pt2 import Pt2Source
from trtcache.lowering.interface import Content
from trtcache.runtime.executable import Executable
from trtcache.runtime.weight_source import WeightSource, whole_weight
from trtcache.weights.files import SAVE_AGAIN, TensorRecord, aligned_member, damage
from trtcache.weights.slots import EngineWeight, alike, check, fit

if TYPE_CHECKING:
    from trtcache.keys.key import KeyAlias
    from trtcache.store.contract import Entry

_WEIGHTS = "data/weights/"
_CHUNK_BYTES = 1 << 22
_CPU = torch.device("cpu")


@frozen_dataclass
class FileRefit:
    """The comparison of a program's weights with new ones.

    Attributes:
        weights: the number of weights; tied weights count once.
        changed: the names of the weights whose values differ.
    """

    weights: int
    changed: tuple[str, ...]


def refit_program(path: Path, weights: Path, output: Path | None = None) -> FileRefit:
    """Compare a program's weights with those in a file, and write the program with the new weights.

    Args:
        path: a file that ``torch.export.save`` wrote.
        weights: a file of weights, by the program's names for them.
        output: the file to write, atomically; it may be ``path``.

    Raises:
        ModelFileError: the program cannot be read, or is damaged.
        WeightsFileError: the weights cannot be read, or are damaged.
        RefitError: they do not fit, or have several values for one location in memory; nothing was written.
        OSError: ``output`` cannot be written.
    """
    with Pt2Source(path) as file:
        if why := damage(path):
            raise ModelFileError(str(path), f"{why}; {SAVE_AGAIN}")
        try:
            tensors = file.weights(file.names)
        except ValueError as error:
            raise ModelFileError(str(path), str(error)) from error
        weight_records = {name: one for name, one in file.records.items() if one["folder"] == "weights"}
        records = {name: TensorRecord.parse(name, one, _WEIGHTS) for name, one in weight_records.items()}
        program_weights = _weights_of(records, tensors)
        constants = {name: Content.of(one) for name, one in tensors.items() if name not in records}
        given = WeightSource.of(weights, known=frozenset(tensors), constants=constants)
        sources = check(program_weights, given.state, known=frozenset(tensors), device=_CPU, anywhere=True)
        changed = [
            one for one in program_weights if not _is_equal(tensors[one.slots[0].names[0]], sources.given[one.index])
        ]
        if output is not None:
            values = {name: sources.given[one.index] for one in program_weights for name in one.slots[0].names}
            touched = {records[name].member for one in changed for name in one.slots[0].names}
            _write(path, output, records, {name: values[name] for name in values if records[name].member in touched})
    return FileRefit(len(program_weights), tuple(one.label for one in changed))


def _weights_of(records: Mapping[str, TensorRecord], tensors: Mapping[str, torch.Tensor]) -> list[EngineWeight]:
    """Return the weights of a program; names that share memory are one weight."""
    tied: dict[TensorRecord, list[str]] = {}
    for name, record in records.items():
        tied.setdefault(record, []).append(name)
    return [whole_weight(index, names, tensors[names[0]]) for index, names in enumerate(tied.values())]


def _is_equal(old: torch.Tensor, new: torch.Tensor) -> bool:
    return alike(old.detach().contiguous(), new.detach().to(old.device).contiguous())


def _write(path: Path, output: Path, records: Mapping[str, TensorRecord], values: Mapping[str, torch.Tensor]) -> None:
    """Copy an archive with new bytes for some weights."""
    members: dict[str, list[str]] = {}
    for name in values:
        members.setdefault(records[name].member, []).append(name)
    with atomic_write(output) as temporary, zipfile.ZipFile(path) as source, zipfile.ZipFile(temporary, "w") as target:
        for info in source.infolist():
            names = members.get(info.filename.partition("/")[2])
            with target.open(aligned_member(info.filename, info.file_size, target), "w") as member:
                if names:
                    changes = {name: (records[name], values[name]) for name in names}
                    member.write(_replace_weights(source.read(info), changes))
                    continue
                with source.open(info) as content:
                    while chunk := content.read(_CHUNK_BYTES):
                        member.write(chunk)


def _replace_weights(content: bytes, changes: Mapping[str, tuple[TensorRecord, torch.Tensor]]) -> memoryview:
    """Return the bytes of a member with new weights, which may be parts of it."""
    data = bytearray(content)
    places: dict[str, torch.Tensor] = {}
    for name, (record, value) in changes.items():
        flat = torch.frombuffer(data, dtype=value.dtype, count=len(data) // value.dtype.itemsize)
        places[name] = flat.as_strided(record.shape, record.strides, record.offset)
    for name, (_, value) in changes.items():
        _without_broadcast_dims(places[name]).copy_(_without_broadcast_dims(value.detach(), places[name]))
    if differ := tuple(name for name, (_, value) in changes.items() if not _is_equal(places[name], value)):
        shared = "of which elements share memory in the program, and would need different values there"
        raise RefitError(mismatched=tuple(f"{name}, {shared}" for name in differ))
    return memoryview(data)


def _without_broadcast_dims(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Return a tensor without the dimensions that ``like``, or itself, repeats with strides of 0 (``expand``)."""
    repeated = [dim for dim, stride in enumerate((tensor if like is None else like).stride()) if stride == 0]
    for dim in repeated:
        tensor = tensor.narrow(dim, 0, min(1, tensor.shape[dim]))
    return tensor


def check_entry(entry: Entry, aliases: Sequence[KeyAlias], weights: Path) -> tuple[Executable, WeightSource]:
    """Check that a file of weights fits an entry's engine, and return the engine and the weights.

    An entry has no names for its weights; the key aliases that lead to it have those of its programs.

    Raises:
        RefitError: they do not fit with the names of any program, or the entry has embedded weights.
        IncompatibleEngineError: the entry is not of an engine, or the names of no program are known for it.
        WeightsFileError: the file cannot be read.
    """
    parts = entry.key.parts
    if isinstance(parts, dict) and (frozen := parts.get("frozen")):
        why = f"all {len(frozen)} weights are in the engine; build the program with the new weights instead"
        raise RefitError(mismatched=(why,))
    if not aliases:
        why = "no key alias leads to it, and it has no names for its weights: give the program's .pt2 file"
        why += " (aliases of programs in memory do not count: they cannot be read without the program)"
        raise IncompatibleEngineError(entry.key.digest, why)
    refused: RefitError | None = None
    for alias in aliases:
        executable = Executable.from_entry(entry, alias)
        given = WeightSource.of(weights, known=alias.known, constants=alias.constant_contents)
        needed = executable.interface.weights
        try:
            check(needed, given.state, known=alias.known, device=alias.device, keep=True, anywhere=True)
        except RefitError as error:
            refused = refused or error
            continue
        return executable, given
    assert refused is not None  # noqa: S101  # there is an alias, and none fits
    raise refused


def refit_artifact(entry: Entry, executable: Executable, given: WeightSource) -> memoryview:
    """Return the artifact of an entry with new weights.

    Raises:
        NoDeviceError: the device that this needs is not available.
        IncompatibleEngineError: the entry's engine contains no weights, or cannot be loaded.
        RefitError: the backend rejects a weight.
    """

    def weights() -> Mapping[str, torch.Tensor]:
        return fit(executable.interface.weights, given.state, known=executable.known, device=executable.device)

    written = registry.load_backend(entry.kind).refit_artifact(entry.read, weights)
    if written is None:
        why = "contains no weights: nothing can be written; give the program's .pt2 file, or use module.refit(FILE)"
        raise IncompatibleEngineError(entry.key.digest, f"an engine of {entry.kind} {why}")
    return written
