"""ONNX files: the model without its external data, and its tensors by reference.

A tensor names its file in an entry of strings, ``{1: "location", 2: NAME}``. Each occurrence of that word is followed
from the model through the fields around it. If all of them lie in such entries, the names in these are all locations;
if one does not, as in the name of a node, the model has to be parsed.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import re
import stat
import sys
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Digest, Json, encode
from trtcache.errors import OnnxFileError
from trtcache.frontends.onnx.schemas import FunctionError, find_faults, inline_functions, iter_names

_WORD = b"location"
_ENTRY = b"\x0a\x08" + _WORD + b"\x12"
"""The first bytes of an entry; the length of the name, and the name, follow."""

_LONGEST = 127  # the length of a longer name takes two bytes
_DEEPEST = 100  # protobuf's limit


def find_locations(model: memoryview) -> list[str]:
    """Return the locations of external data in a serialized model, sorted, and maybe other names.

    Raises:
        ValueError: they cannot be found without parsing the model.
    """
    places = [match.start() for match in re.finditer(_WORD, model)]
    names = _names(model, 0, len(model), places, 0) if places else ()
    return sorted({name.decode("ascii") for name in names})


def _names(model: memoryview, start: int, end: int, places: Sequence[int], depth: int) -> Iterator[bytes]:
    """Yield the names in a message, in which the word is at some places.

    Raises:
        ValueError: one of them is not in an entry that consists of the word and a name.
    """
    name = start + len(_ENTRY) + 1
    if len(places) == 1 and name <= end and model[start : name - 1] == _ENTRY:
        if not model[name - 1] == end - name <= _LONGEST:
            raise ValueError("the entry has more than a name, or a long one")
        yield bytes(model[name:end])
        return
    if depth > _DEEPEST:
        raise ValueError("the messages are nested too deep")
    first = 0
    for begin, finish in _fields(model, start, end):
        after = bisect_left(places, finish, first)
        if after > first:
            if places[first] < begin:
                raise ValueError("the word is between two fields")
            yield from _names(model, begin, finish, places[first:after], depth + 1)
            first = after
            if first == len(places):
                return
    raise ValueError("the word is in no field")


def _fields(model: memoryview, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the fields that may be messages begin and end.

    Raises:
        ValueError: the bytes are no message, or have a group.
    """
    while at < end:
        tag, at = _varint(model, at, end)
        match tag & 7:
            case 0:
                _, at = _varint(model, at, end)
            case 1:
                at += 8
            case 2:
                length, at = _varint(model, at, end)
                if length > end - at:
                    raise ValueError("a field is longer than its message")
                yield at, at + length
                at += length
            case 5:
                at += 4
            case _:
                raise ValueError("a group, or no message")


def _varint(model: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a number and the place after it.

    Raises:
        ValueError: it has no end, or more than 10 bytes.
    """
    value = 0
    for place in range(at, min(at + 10, end)):
        byte = model[place]
        value |= (byte & 127) << 7 * (place - at)
        if byte < 128:
            return value, place + 1
    raise ValueError("a number without an end")


EXTERNAL = 1  # TensorProto.EXTERNAL
_STRING = 8


@frozen_dataclass
class ElementType:
    """An ONNX dtype: its name in torch, if torch has it, and the bits of an element."""

    name: str
    bits: int


TYPES = {
    code: ElementType(name, bits)
    for code, name, bits in (
        *((1, "float32", 32), (2, "uint8", 8), (3, "int8", 8), (4, "uint16", 16), (5, "int16", 16), (6, "int32", 32)),
        *((7, "int64", 64), (8, "string", 0), (9, "bool", 8), (10, "float16", 16), (11, "float64", 64)),
        *((12, "uint32", 32), (13, "uint64", 64), (14, "complex64", 64), (15, "complex128", 128)),
        *((16, "bfloat16", 16), (17, "float8_e4m3fn", 8), (18, "float8_e4m3fnuz", 8), (19, "float8_e5m2", 8)),
        *((20, "float8_e5m2fnuz", 8), (21, "uint4", 4), (22, "int4", 4), (23, "float4_e2m1fn", 4)),
        (24, "float8_e8m0fnu", 8),
    )
}
"""``TensorProto.DataType``: the values that this reader supports."""


def digest_of_texts(texts: Iterable[bytes]) -> Digest:
    """Return the digest of the elements of a tensor of strings."""
    return Digest.of(encode([one.hex() for one in texts]))


_MOST_DIGITS = 100
_MOST_NAME_BYTES = 255
_MOST_PATH_BYTES = 4000


class ExternalData:
    """The files with external data of one model, mapped on first use and never read as a whole.

    A model names these files itself, so the names are not trusted: paths out of the model's own folder, links, and
    anything but regular files are refused. Tensors are views of the mapped files: replace such a file by renaming.
    """

    def __init__(self, model: Path) -> None:
        """Create the external data of the file ``model``."""
        self._model = model
        self._mapped: dict[str, tuple[memoryview, tuple[int, ...]]] = {}

    def content(self, tensor: Any, size_bytes: int) -> memoryview:
        """Return the bytes of a tensor.

        Raises:
            OnnxFileError: its file is missing, forbidden or too short; the message names it.
        """
        fields = {entry.key: entry.value for entry in tensor.external_data}
        where = f"tensor {tensor.name!r}"
        offset = self._number(fields.get("offset", "0"), where, "offset")
        length = self._number(fields.get("length", str(size_bytes)), where, "length")
        if length != size_bytes:
            raise self._error(f"{where} has {length} bytes of external data, and its shape needs {size_bytes}")
        content = self._content(fields.get("location", ""), where)
        if offset + length > len(content):
            found = f"{offset} to {offset + length} of {fields.get('location')}, which has {len(content)}"
            raise self._error(f"{where} is in bytes {found}: the file is cut off, or belongs to another model")
        return content[offset : offset + length]

    def digests(self, locations: Iterable[str]) -> dict[str, Digest]:
        """Return the digests of files by their locations in the model."""
        return {one: Digest.of(self._content(one, f"external data {one!r}")) for one in sorted(set(locations))}

    def check_unchanged(self) -> None:
        """Check that no file was written to since it was opened.

        Raises:
            OnnxFileError: one was; the data may be a mixture of both.
        """
        for location, (_, before) in self._mapped.items():
            try:
                now = state(os.stat(self._model.parent / location))  # noqa: PTH116  # compared with fstat's
            except FileNotFoundError:
                continue  # it was replaced: the old one is mapped
            if now[0] == before[0] and now != before:
                raise self._error(f"{location} was written to while it was read; write a new file and rename it")

    def _number(self, text: str, where: str, what: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            raise self._error(f"{where} has external data with {what} {text[:40]!r}, which is not a number of bytes")
        return int(text)

    def _content(self, location: str, where: str) -> memoryview:
        """Return the bytes of a file, mapped on first use."""
        if location in self._mapped:
            return self._mapped[location][0]
        path = self._path(location, where)
        try:
            # O_NONBLOCK: opening a pipe must not wait for its writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            remedy = "it belongs beside the model" if error.errno == errno.ENOENT else "see its permissions"
            raise self._error(f"{where} is in {path.name}, which cannot be read: {error.strerror}; {remedy}") from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise self._error(f"{where} is in {path.name}, which is not a regular file")
            mapped = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE) if status.st_size else b""
        finally:
            os.close(descriptor)
        self._mapped[location] = memoryview(mapped), state(status)
        return self._mapped[location][0]

    def _path(self, location: str, where: str) -> Path:
        """Return the path of a file below the model's folder.

        Raises:
            OnnxFileError: the location leads elsewhere, or over a link.
        """
        parts = PurePosixPath(location).parts
        if not location or "\\" in location or "\0" in location or location.startswith("/") or ".." in parts:
            raise self._error(f"{where} is in {location!r}, and external data must be in the model's own folder")
        path = self._model.parent
        for part in parts:
            path /= part
            if len(os.fsencode(part)) > _MOST_NAME_BYTES or len(os.fsencode(path)) > _MOST_PATH_BYTES:  # ENAMETOOLONG
                raise self._error(f"{where} is in {location[:40]!r}..., a name that is too long for a file")
            if path.is_symlink():
                remedy = "copy the files themselves into one folder (cp -L)"
                raise self._error(f"{where} is in {location!r}, which is a link and may lead anywhere; {remedy}")
        return path

    def _error(self, why: str) -> OnnxFileError:
        return OnnxFileError(str(self._model), why)


def state(status: os.stat_result) -> tuple[int, ...]:
    """Return the fields of a file's status that change when it is written to, its inode first."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def size_bytes(tensor: Any) -> int:
    """Return the size of a tensor's elements in memory."""
    bits: int = math.prod(tensor.dims) * TYPES[tensor.data_type].bits
    return (bits + 7) // 8


SUFFIX = ".onnx"
_MOST_BYTES = (1 << 31) - 1  # protobuf's limit

_OTHER_FORMATS = (
    (b"PK\x03\x04", "it is a zip archive, such as torch.save and torch.export.save write"),
    (b"ORTM", "it is in ONNX Runtime's own format (.ort); give the .onnx file that it was converted from"),
    (b"version https://git-lfs", "it is a pointer of git-lfs, not the file itself; run: git lfs pull"),
    (b"<", "it is a web page or XML"),
)


def is_onnx(model: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether a model is the path of an ONNX file, by its suffix."""
    return isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(SUFFIX)


class OnnxFile:
    """An ONNX model in a file.

    Attributes:
        path: the file's path.
        digest: the digest of the file itself; files with external data have digests of their own.
        external: the files with external data.
    """

    def __init__(self, path: Path) -> None:
        """Open, map and hash a file; nothing is parsed yet.

        Raises:
            OnnxFileError: the file does not exist, cannot be read, or is of another known format.
        """
        self.path = path
        try:
            with path.open("rb", buffering=0) as file:
                self._before = state(os.fstat(file.fileno()))
                self._bytes = memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE))
        except FileNotFoundError as error:
            raise self.error("the file does not exist") from error
        except (OSError, ValueError) as error:  # ValueError: an empty file
            why = error.strerror if isinstance(error, OSError) else "it is empty"
            raise self.error(f"it cannot be read: {why}") from error
        for prefix, description in _OTHER_FORMATS:
            if bytes(self._bytes[: len(prefix)]) == prefix:
                raise self.error(description)
        self.digest = Digest.of(self._bytes)
        self.external = ExternalData(path)

    @cached_property
    def model(self) -> Any:
        """The ``ModelProto``, without external data.

        Raises:
            OnnxFileError: it is not an ONNX file, is ambiguous, or the ``onnx`` package is not installed.
        """
        if len(self._bytes) > _MOST_BYTES:
            remedy = "save it with external data: onnx.save(model, path, save_as_external_data=True)"
            raise self.error(f"it is larger than 2 GB, which protobuf cannot read; {remedy}")
        try:
            import onnx
        except ImportError as error:
            raise self.error("reading it needs the onnx package: pip install 'trtcache[tensorrt-rtx]'") from error
        try:
            model = onnx.ModelProto.FromString(self._bytes)
        except Exception as error:  # google.protobuf.message.DecodeError, from the protobuf that onnx was built with
            raise self.error("it is not an ONNX file, or is damaged or cut off") from error
        if not model.HasField("graph") or not model.opset_import:
            raise self.error("it is not an ONNX file: it has no graph, or no opset versions")
        if not all(isinstance(name, str) for name in iter_names(model)):  # protobuf returns invalid UTF-8 as bytes
            raise self.error("it is damaged: a name in it is not valid UTF-8")
        for fault in find_faults(model):
            raise self.error(fault)
        try:
            inlined = inline_functions(model)
        except FunctionError as error:
            raise self.error(str(error)) from error
        if inlined is not model:
            for fault in find_faults(inlined):
                raise self.error(f"{fault}, after its functions were inlined")
        return inlined

    @cached_property
    def initializers(self) -> dict[str, Any]:
        """The graph's initializers by name."""
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def locations(self) -> list[str]:
        """The locations of external data in the model, sorted."""
        locations: set[str] = set()
        for tensor in tensors_in(self.model.graph):
            if tensor.data_location == EXTERNAL:
                locations |= {entry.value for entry in tensor.external_data if entry.key == "location"}
        return sorted(locations)

    def scan_locations(self) -> list[str]:
        """Return the locations of external data, without parsing the model if they can be found in its bytes.

        The names that are found may include others.
        """
        try:
            return find_locations(self._bytes)
        except ValueError:
            return self.locations

    def check_unchanged(self) -> None:
        """Check that neither the file nor its external data was written to since it was opened.

        Raises:
            OnnxFileError: one was.
        """
        with suppress(FileNotFoundError):
            now = state(self.path.stat())
            if now[0] == self._before[0] and now != self._before:
                raise self.error("it was written to while it was read; write a new file and rename it over this one")
        self.external.check_unchanged()

    def type_of(self, code: int, what: str) -> ElementType:
        """Return a dtype by its number.

        Raises:
            OnnxFileError: this reader does not support it.
        """
        if code not in TYPES:
            raise self.error(f"{what} has dtype {code} of ONNX, which this trtcache does not know")
        return TYPES[code]

    def bytes_of(self, tensor: Any) -> memoryview | None:
        """Return a tensor's elements as a view if the file has their bytes, else None (lists of numbers, strings).

        Raises:
            OnnxFileError: they are missing, or their number contradicts its shape.
        """
        kind = self.type_of(tensor.data_type, f"tensor {tensor.name!r}")
        if tensor.HasField("segment"):
            raise self.error(f"tensor {tensor.name!r} is stored in segments, which are not supported")
        if tensor.data_location == EXTERNAL:
            return self.external.content(tensor, size_bytes(tensor))
        if not tensor.HasField("raw_data") or sys.byteorder != "little":
            return None
        content, needed = memoryview(tensor.raw_data), size_bytes(tensor)
        if len(content) != needed:
            found = f"has {len(content)} bytes, and its shape {list(tensor.dims)} of {kind.name} needs {needed}"
            raise self.error(f"tensor {tensor.name!r} {found}")
        return content

    def tensor_digest(self, tensor: Any) -> Digest:
        """Return the digest of a tensor's elements, in whichever field of the file they are."""
        if tensor.data_type == _STRING:
            return digest_of_texts(tensor.string_data)
        content = self.bytes_of(tensor)
        if content is not None and TYPES[tensor.data_type].bits >= 8:
            return Digest.of(content)
        return Digest.of(self._unpack(tensor, content))

    def _unpack(self, tensor: Any, content: memoryview | None = None) -> bytes:
        """Return a tensor's elements as bytes, 4-bit elements unpacked; ``content`` is external data.

        Raises:
            OnnxFileError: they cannot be read.
        """
        from onnx import TensorProto, numpy_helper

        if tensor.data_location == EXTERNAL:
            tensor, raw = TensorProto(data_type=tensor.data_type, dims=tensor.dims), content
            tensor.raw_data = bytes(raw or b"")
        try:
            return bytes(numpy_helper.to_array(tensor).tobytes())
        except (ValueError, TypeError, RuntimeError) as error:
            raise self.error(f"tensor {tensor.name!r} cannot be read: {error}") from error

    def document(self, tensor: Any) -> list[Json]:
        """Return the description of a constant in a record: digest, dtype and shape."""
        kind = self.type_of(tensor.data_type, f"tensor {tensor.name!r}")
        return [str(self.tensor_digest(tensor)), kind.name, list(tensor.dims)]

    def tensor(self, proto: Any) -> torch.Tensor:
        """Return one tensor."""
        dtype = getattr(torch, self.type_of(proto.data_type, f"tensor {proto.name!r}").name)
        flat = self.flat(proto)
        if flat.data_ptr() % dtype.itemsize:
            flat = flat.clone()
        return flat.view(dtype).reshape(tuple(proto.dims))

    def flat(self, proto: Any) -> torch.Tensor:
        """Return a tensor's bytes."""
        content = self.bytes_of(proto)
        if content is None:
            content = memoryview(self._unpack(proto))
        if not len(content):
            return torch.empty(0, dtype=torch.uint8)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")  # it is never written to
            return torch.frombuffer(content, dtype=torch.uint8)

    def release(self) -> None:
        """Drop the parsed model; it is parsed again on the next access."""
        for name in ("model", "initializers"):
            self.__dict__.pop(name, None)

    def error(self, why: str) -> OnnxFileError:
        """Return an error of this file."""
        return OnnxFileError(str(self.path), why)


def tensors_in(message: Any) -> Iterator[Any]:
    """Yield the tensors in a message of ONNX, in whichever fields they are."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in (value,) if hasattr(value, "DESCRIPTOR") else value:
                yield from tensors_in(one)
