"""Files of weights: memory-mapped zip archives, and safetensors files as host arrays.

torch maps archives without comparing checksums.
"""

from __future__ import annotations

import json
import math
import mmap
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest, Json, encode, hash_bytes
from trtcache.errors import WeightsFileError
from trtcache.weights.arrays import ITEM_BYTES, HostArray, contiguous, pointer_of

ALIGNED_BYTES = 64
"""Alignment of member contents in torch's archives, so that they can be used in place."""

_ENCRYPTED = 1
_HEADER_BYTES, _ZIP64_BYTES, _EXTRA_BYTES = 30, 20, 4

KNOWN_VERSION: Final = "0"
"""The version of archives of ``torch.export.save`` that is read here."""

SAVE_AGAIN: Final = "save it again, or copy it again from an intact copy"
"""What to do with a damaged archive."""

HAS_ENGINES: Final = "it contains engines: trtcache.load runs it; give the program that it was exported from"
"""Why a file that ``trtcache.export`` wrote is not read as one of weights."""


def aligned_member(name: str, size_bytes: int, target: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Describe a new member with padding that aligns its content as torch does."""
    info = zipfile.ZipInfo(name)
    info.file_size = size_bytes
    position = target.fp.tell() if target.fp else 0
    start = position + _HEADER_BYTES + len(name.encode()) + _EXTRA_BYTES
    start += _ZIP64_BYTES if size_bytes * 1.05 > zipfile.ZIP64_LIMIT else 0
    padding = -start % ALIGNED_BYTES
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    return info


def damage(path: Path) -> str:
    """Return what is damaged in an archive, empty if nothing is; the file is read once.

    Members are named without the folder that all of them are in.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb", buffering=0) as file:
            members = archive.infolist()
            mapped = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        return f"it is damaged or cut off ({error})"
    # torch.serialization.set_crc32_options(False) omits all checksums.
    if any(info.CRC for info in members):
        for info in members:
            if why := member_damage(mapped, info, name=info.filename.partition("/")[2] or info.filename):
                return f"it is damaged ({why})"
    return ""


def member_damage(mapped: memoryview, info: zipfile.ZipInfo, *, name: str) -> str:
    """Return what is damaged in one member of a mapped archive, called ``name``; empty if nothing is."""
    try:
        whole = zlib.crc32(content(mapped, info)) == info.CRC
    except ValueError as error:
        return str(error)
    return "" if whole else f"its member {name} does not have its checksum"


def content(mapped: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """Return a member's content, without a copy if it is not compressed.

    Raises:
        ValueError: it is outside of the archive, or cannot be decompressed.
    """
    data = raw(mapped, info)
    if info.flag_bits & _ENCRYPTED:
        raise ValueError(f"{info.filename} is encrypted")
    if info.compress_type == zipfile.ZIP_DEFLATED:
        try:
            data = memoryview(bytearray(zlib.decompress(data, -zlib.MAX_WBITS, info.file_size)))
        except zlib.error as error:
            raise ValueError(f"{info.filename} cannot be decompressed: {error}") from error
    elif info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{info.filename} has an unknown compression")
    if len(data) != info.file_size:
        raise ValueError(f"{info.filename} is cut off")
    return data


def raw(mapped: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """Return a member's stored bytes, fewer than declared if the archive is cut off."""
    header = bytes(mapped[info.header_offset : info.header_offset + _HEADER_BYTES])
    names = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    start = info.header_offset + _HEADER_BYTES + sum(names)
    return mapped[start : start + info.compress_size]


DTYPE_NAMES: Final[Mapping[str, str]] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
"""torch's names of dtypes by those in safetensors files."""

LENGTH_BYTES: Final = 8
INDEX_LIMIT_BYTES: Final = 100_000_000
_HEADER_LIMIT_BYTES = 100_000_000  # the limit of the safetensors library
_METADATA = "__metadata__"
SUPPORTED: Final = "give a .safetensors file, a .pt2 program, or a state_dict that torch.save wrote"
_BROKEN = (ValueError, LookupError, TypeError, AttributeError)


def read_header(path: Path) -> tuple[dict[str, Any], memoryview]:
    """Return the checked header of a file by tensor, and the bytes after it, mapped.

    Raises:
        WeightsFileError: it is not a safetensors file, or it is cut off.
        ValueError: the header is malformed; LookupError and TypeError are possible too.
        OSError: it cannot be read.
    """
    size_bytes = path.stat().st_size
    if size_bytes < LENGTH_BYTES:
        raise WeightsFileError(str(path), f"it has {size_bytes} bytes, too few for a file of weights; {SUPPORTED}")
    with path.open("rb") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE))
    length = int.from_bytes(memory[:LENGTH_BYTES], "little")
    if length > min(_HEADER_LIMIT_BYTES, len(memory) - LENGTH_BYTES) or bytes(memory[LENGTH_BYTES:][:1]) != b"{":
        raise WeightsFileError(str(path), f"it is not a .safetensors file, or it is cut off; {SUPPORTED}")
    start = LENGTH_BYTES + length
    header = json.loads(bytes(memory[LENGTH_BYTES:start]), object_pairs_hook=_unique)
    header.pop(_METADATA, None)
    if unknown := sorted({str(one["dtype"]) for one in header.values()} - DTYPE_NAMES.keys()):
        raise WeightsFileError(str(path), f"it has weights of dtype {unknown[0]}, which is not supported")
    _check_places(header, len(memory) - start)
    return header, memory[start:]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) != len(pairs):
        raise ValueError("two tensors have one name")
    return items


def _check_places(header: Mapping[str, Any], size_bytes: int) -> None:
    """Check that the tensors are contiguous and fill the file.

    Raises:
        ValueError: they are not.
    """
    end = 0
    for name, meta in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = meta["data_offsets"]
        count = math.prod(meta["shape"])
        if start != end or any(type(size) is not int or size < 0 for size in meta["shape"]):
            raise ValueError(f"{name} does not follow the tensor before it")
        if stop - start != count * ITEM_BYTES[DTYPE_NAMES[meta["dtype"]]]:
            raise ValueError(f"{name} has {stop - start} bytes, which its shape {meta['shape']} and dtype contradict")
        end = stop
    if end != size_bytes:
        fault = "cut off" if end > size_bytes else "too long"
        raise ValueError(f"its tensors need {end} bytes and the file has {size_bytes} for them: it is {fault}")


def is_without_torch(path: Path) -> bool:
    """Return whether ``read_arrays`` reads a file: it is a safetensors file, or the index of several.

    Raises:
        WeightsFileError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            first = file.read(LENGTH_BYTES + 1)
    except OSError as error:
        raise WeightsFileError(str(path), error.strerror or str(error)) from error
    return path.suffix == ".json" or first[LENGTH_BYTES:] == b"{"


def read_arrays(path: Path) -> dict[str, HostArray]:
    """Return the weights in a safetensors file, or in those of an index, by name, as views of the mapped files.

    Raises:
        WeightsFileError: the file does not exist, is damaged or truncated, or is of an unsupported kind.
    """
    try:
        if path.suffix == ".json":
            return read_index(path, read_arrays)
        header, content = read_header(path)
        return {name: array_at(one, content) for name, one in header.items()}
    except OSError as error:
        raise WeightsFileError(str(path), error.strerror or str(error)) from error
    except _BROKEN as error:
        raise WeightsFileError(str(path), f"it is damaged ({type(error).__name__}: {error})") from error


_Weight = TypeVar("_Weight")


def read_index(path: Path, read: Callable[[Path], Mapping[str, _Weight]]) -> dict[str, _Weight]:
    """Return the weights of the files in an index (``model.safetensors.index.json``), each read by ``read``."""
    if path.stat().st_size > INDEX_LIMIT_BYTES:
        raise WeightsFileError(str(path), f"it is too large for an index of files; {SUPPORTED}")
    places: Mapping[str, str] = json.loads(path.read_bytes())["weight_map"]
    if outside := sorted(name for name in set(places.values()) if "/" in name or name.startswith(".")):
        raise WeightsFileError(str(path), f"it names files that are not beside it: {outside[0]}")
    files = {name: read(path.with_name(name)) for name in sorted(set(places.values()))}
    return {name: files[place][name] for name, place in places.items()}


def array_at(described: Mapping[str, Any], content: memoryview) -> HostArray:
    """Return the array that a safetensors header describes: a view of the bytes if they are aligned, else a copy.

    Raises:
        LookupError: its dtype is unknown.
        ValueError: its bytes are not within ``content``.
    """
    begin, end = described["data_offsets"]
    dtype, shape = DTYPE_NAMES[described["dtype"]], tuple(described["shape"])
    if not 0 <= begin <= end <= len(content) or end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError("bytes that are not within the file")
    return array_in(content[begin:end], dtype, shape, contiguous(shape))


TORCH_DTYPES: Final[Mapping[int, str]] = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    34: "uint32",
    35: "uint64",
}
"""torch's names of dtypes by ``ScalarType`` of torch/_export/serde/schema.py: those that are read here."""

TORCH_STRIDED: Final = 7
"""``Layout`` of a dense tensor in torch/_export/serde/schema.py."""


@frozen_dataclass
class TensorRecord:
    """Where a tensor is in an archive of ``torch.export.save``.

    Attributes:
        member: the name of the member with its bytes.
        dtype: torch's name of the dtype.
        shape, strides: in elements.
        offset: elements from the start of the member; 0 for a tensor without elements.
        device: its device as text, such as ``cpu`` or ``cuda:0``.
    """

    member: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str

    @classmethod
    def parse(cls, name: str, written: Mapping[str, Any], folder: str) -> TensorRecord:
        """Parse an archive's record of the tensor ``name``, whose member is in ``folder``.

        Raises:
            ValueError: it is pickled, not dense, or has an invalid size; LookupError and TypeError are possible too.
        """
        meta = written["tensor_meta"]
        if written["use_pickle"] is not False or meta["layout"] != TORCH_STRIDED:
            raise ValueError(f"weight {name} is pickled, or not a dense tensor")
        shape, strides = (tuple(_parse_size(one["as_int"]) for one in meta[what]) for what in ("sizes", "strides"))
        if len(shape) != len(strides):
            raise ValueError("a weight with more sizes than strides")
        offset = _parse_size(meta["storage_offset"]["as_int"]) if math.prod(shape) else 0
        member, dtype = f"{folder}{written['path_name']}", TORCH_DTYPES[meta["dtype"]]
        return cls(member, dtype, shape, strides, offset, parse_device(meta["device"]))

    def check_bytes(self, size_bytes: int) -> None:
        """Check that the tensor is within a member of this size.

        Raises:
            ValueError: it is not, or the member does not have a whole number of elements.
        """
        count, left = divmod(size_bytes, ITEM_BYTES[self.dtype])
        if left:
            raise ValueError("a weight whose size is not a multiple of its dtype's")
        last = sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        if math.prod(self.shape) and self.offset + last >= count:
            raise ValueError("a weight that is larger than its bytes")


_Member = TypeVar("_Member")

OF_ALL_BYTES: Final = ".data/serialization_id"
"""The member with a hash over all members, weights too: torch/csrc/.../inline_container.cc."""


def read_records(content_of: Callable[[str], memoryview]) -> dict[str, dict[str, Any]]:
    """Return torch's records of an archive's constants and weights by name; ``content_of`` returns a member's bytes."""
    records: dict[str, dict[str, Any]] = {}
    for folder in ("constants", "weights"):
        config = json.loads(bytes(content_of(f"data/{folder}/model_{folder}_config.json")))
        records |= {name: {**record, "folder": folder} for name, record in config["config"].items()}
    return records


def weight_members(records: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the members that contain only the bytes of weights."""
    weights = [one for one in records.values() if one["folder"] == "weights" and one["use_pickle"] is False]
    return frozenset([f"data/weights/{one['path_name']}" for one in weights])


def digest_without_weights(
    members: Mapping[str, tuple[int, int, _Member]], weights: Collection[str], stored: Callable[[_Member], memoryview]
) -> Digest:
    """Return the digest of an archive's members: compression, size, and the ``stored`` bytes of all but ``weights``."""
    forms: dict[str, Json] = {}
    for name, (compression, size_bytes, member) in members.items():
        left_out = name in weights or name == OF_ALL_BYTES
        forms[name] = [compression, size_bytes, *([] if left_out else [hash_bytes(stored(member)).hex()])]
    encoded = encode(forms)
    return Digest(hash_bytes(encoded).hex(), len(encoded))


def parse_device(written: Mapping[str, Any]) -> str:
    """Return a device in torch's archive as text, such as ``cpu`` or ``cuda:0``."""
    kind, index = str(written["type"]), written["index"]
    return kind if index is None else f"{kind}:{index}"


def _parse_size(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 62:
        raise ValueError(f"a weight of the size {number!r:.40}")
    return number


def array_in(
    content: memoryview,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int = 0,
    *,
    alignment: int = 1,
) -> HostArray:
    """Return an array in some bytes, ``offset`` items from their start: a view if they are aligned, else of a copy."""
    if not len(content):
        content = memoryview(bytearray(16))
    pointer, owner = pointer_of(content)
    if pointer % math.lcm(ITEM_BYTES[dtype], alignment):
        pointer, owner = pointer_of(memoryview(bytearray(content)))
    return HostArray(dtype, shape, strides, pointer + offset * ITEM_BYTES[dtype], owner)
