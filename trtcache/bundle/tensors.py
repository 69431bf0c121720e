"""Weights and constants in torch's archive format: members of plain bytes, and JSON that describes their layout."""

from __future__ import annotations

import ctypes
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trtcache.frontends.torch_archive import DTYPES, STRIDED, flat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trtcache.digests import Json

_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Run:
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
        step = max(1, _CHUNK_BYTES // tensor.itemsize)
        for at in range(0, len(whole), step):
            on_cpu = whole[at : at + step].cpu().view(torch.uint8)
            buffer = (ctypes.c_ubyte * len(on_cpu)).from_address(on_cpu.data_ptr())
            buffer._tensor = on_cpu  # type: ignore[attr-defined]  # keeps its memory alive
            yield memoryview(buffer).cast("B")


def runs(tensors: Mapping[str, torch.Tensor]) -> list[Run]:
    """Return the ranges to write for tensors: shared memory is written once."""
    storages: dict[tuple[int, torch.dtype], list[tuple[int, int, str]]] = defaultdict(list)
    plain = {name: tensor.detach().resolve_conj().resolve_neg() for name, tensor in tensors.items()}
    empty = []
    for name, tensor in plain.items():
        if tensor.numel() == 0:
            empty.append(Run({name: tensor}, 0, 0))
            continue
        start = int(tensor.storage_offset())
        last = start + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        storages[tensor.untyped_storage().data_ptr(), tensor.dtype].append((start, last + 1, name))
    found = [run for places in storages.values() for run in _merge(sorted(places), plain)]
    return [*found, *empty]


def config(runs_by_member: Mapping[str, Run], parameters: frozenset[str]) -> dict[str, Json]:
    """Return torch's records for members by name: the member, and the tensor's layout in it."""
    records: dict[str, Json] = {}
    for member, run in runs_by_member.items():
        for name, tensor in run.tensors.items():
            offset = int(tensor.storage_offset()) - run.start if tensor.numel() else 0
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
            "dtype": _NUMBERS[tensor.dtype],
            "sizes": [{"as_int": size} for size in tensor.shape],
            "requires_grad": False,
            "device": {"type": device.type, "index": device.index},
            "strides": [{"as_int": step} for step in tensor.stride()],
            "storage_offset": {"as_int": offset},
            "layout": STRIDED,
        },
    }


def read(config_document: Any, folder: str, content: Callable[[str], memoryview]) -> dict[str, torch.Tensor]:
    """Return the tensors of a folder by name; tensors that share memory in the file do so here.

    Raises:
        ValueError: one is pickled, or exceeds its member.
    """
    flats: dict[tuple[str, torch.dtype], torch.Tensor] = {}
    found = {}
    for name, records in config_document["config"].items():
        meta = records["tensor_meta"]
        if records["use_pickle"] is not False or meta["layout"] != STRIDED:
            raise ValueError(f"weight {name} is pickled, or not a dense tensor")
        place = (str(records["path_name"]), DTYPES[meta["dtype"]])
        if place not in flats:
            plain = content(f"{folder}{place[0]}")
            if len(plain) % place[1].itemsize:
                raise ValueError("a weight whose size is not a multiple of its dtype's")
            flats[place] = flat(plain, place[1])
        shape, stride = ([_size(one["as_int"]) for one in meta[what]] for what in ("sizes", "strides"))
        offset = _size(meta["storage_offset"]["as_int"])
        if len(shape) != len(stride):
            raise ValueError("a weight with more sizes than strides")
        count = math.prod(shape)
        last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if count else -1
        if last >= len(flats[place]):
            raise ValueError("a weight that is larger than its bytes")
        found[str(name)] = flats[place].as_strided(shape, stride, offset if count else 0)
    return found


def _size(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 62:
        raise ValueError(f"a weight of the size {number!r:.40}")
    return number


def _merge(places: list[tuple[int, int, str]], tensors: Mapping[str, torch.Tensor]) -> Iterator[Run]:
    """Join overlapping ranges."""
    start, stop, names = places[0][0], 0, list[str]()
    for begin, end, name in places:
        if begin >= stop and names:
            yield Run({tensor: tensors[tensor] for tensor in names}, start, stop)
            start, stop, names = begin, 0, []
        stop = max(stop, end)
        names.append(name)
    yield Run({tensor: tensors[tensor] for tensor in names}, start, stop)
