"""What an ONNX tensor is made of: its dtype, and the bytes of its elements wherever the file keeps them."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.digests import Digest, encode
from trtcache.errors import OnnxFileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.digests import Json
    from trtcache.frontends.onnx.external import ExternalData

EXTERNAL = 1  # TensorProto.EXTERNAL
_STRING = 8


@dataclass(frozen=True, slots=True)
class ElementType:
    """A dtype of ONNX: torch's name for it where torch has it, and the bits of an element."""

    name: str
    bits: int


TYPES = {
    1: ElementType("float32", 32),
    2: ElementType("uint8", 8),
    3: ElementType("int8", 8),
    4: ElementType("uint16", 16),
    5: ElementType("int16", 16),
    6: ElementType("int32", 32),
    7: ElementType("int64", 64),
    8: ElementType("string", 0),
    9: ElementType("bool", 8),
    10: ElementType("float16", 16),
    11: ElementType("float64", 64),
    12: ElementType("uint32", 32),
    13: ElementType("uint64", 64),
    14: ElementType("complex64", 64),
    15: ElementType("complex128", 128),
    16: ElementType("bfloat16", 16),
    17: ElementType("float8_e4m3fn", 8),
    18: ElementType("float8_e4m3fnuz", 8),
    19: ElementType("float8_e5m2", 8),
    20: ElementType("float8_e5m2fnuz", 8),
    21: ElementType("uint4", 4),
    22: ElementType("int4", 4),
    23: ElementType("float4_e2m1fn", 4),
    24: ElementType("float8_e8m0fnu", 8),
}
"""``TensorProto.DataType``, as far as this reader knows it."""

WEIGHTS = frozenset({"float32", "float16", "bfloat16"})
"""What TensorRT can be given anew."""


class Elements:
    """Reads tensors of one file; ``external`` has the files beside it."""

    def __init__(self, path: str, external: ExternalData) -> None:
        """Read tensors of the file at ``path``."""
        self._path = path
        self._external = external

    def type_of(self, code: int, what: str) -> ElementType:
        """Return a dtype by its number.

        Raises:
            OnnxFileError: it is none that this reader knows.
        """
        if code not in TYPES:
            raise OnnxFileError(self._path, f"{what} has dtype {code} of ONNX, which this trtcache does not know")
        return TYPES[code]

    def bytes_of(self, tensor: Any) -> memoryview | None:
        """Return a tensor's elements where they lie as they are in memory, else None (lists of numbers, strings).

        Raises:
            OnnxFileError: they are not there, or are more or fewer than its shape says.
        """
        kind = self.type_of(tensor.data_type, f"tensor {tensor.name!r}")
        if tensor.HasField("segment"):
            raise OnnxFileError(self._path, f"tensor {tensor.name!r} is kept in segments, which nobody reads")
        size_bytes = (math.prod(tensor.dims) * kind.bits + 7) // 8
        if tensor.data_location == EXTERNAL:
            return self._external.content(tensor, size_bytes)
        if not tensor.HasField("raw_data") or sys.byteorder != "little":
            return None
        content = memoryview(tensor.raw_data)
        if len(content) != size_bytes:
            found = f"has {len(content)} bytes, and its shape {list(tensor.dims)} of {kind.name} needs {size_bytes}"
            raise OnnxFileError(self._path, f"tensor {tensor.name!r} {found}")
        return content

    def digest(self, tensor: Any) -> Digest:
        """Return the digest of a tensor's elements, in whichever field of the file they are.

        Raises:
            OnnxFileError: they are not there, or are more or fewer than its shape says.
        """
        if tensor.data_type == _STRING:
            return digest_of_texts(tensor.string_data)
        content = self.bytes_of(tensor)
        if content is not None and TYPES[tensor.data_type].bits >= 8:
            return Digest.of(content)
        return Digest.of(self.unpack(tensor, content))

    def unpack(self, tensor: Any, content: memoryview | None = None) -> bytes:
        """Return one element after another, of numbers of four bits too; ``content`` is external data.

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
            raise OnnxFileError(self._path, f"tensor {tensor.name!r} cannot be read: {error}") from error

    def document(self, tensor: Any) -> list[Json]:
        """Return a constant as it stands in a record: digest, dtype and shape.

        Raises:
            OnnxFileError: its elements are not there, or are more or fewer than its shape says.
        """
        kind = self.type_of(tensor.data_type, f"tensor {tensor.name!r}")
        return [str(self.digest(tensor)), kind.name, list(tensor.dims)]


def digest_of_texts(texts: Iterable[bytes]) -> Digest:
    """Return the digest of the elements of a tensor of texts."""
    return Digest.of(encode([one.hex() for one in texts]))
