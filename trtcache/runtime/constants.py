"""Reads the constants of a stored entry.

They are in safetensors' format: the length of a header, the header as JSON, the bytes. Reading that takes a few lines,
where importing the library to do it took 3 ms of a hit of 60, and a hundred when its code was not in memory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from trtcache.lowering.contents import Content

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""The format's names for dtypes."""

_LENGTH_BYTES = 8


def in_order(names: Iterable[str]) -> list[str]:
    """Return ``c0``, ``c1``, ... ``c10`` by their numbers."""
    return sorted(names, key=lambda name: int(name.removeprefix("c")))


def read_constants(
    content: bytes, written: Mapping[str, tuple[str, str]], device: torch.device
) -> dict[str, torch.Tensor]:
    """Return constants where the engine wants them.

    Args:
        content: the member.
        written: digest and kind of device of each, as the interface has them.
        device: the engine's.

    Raises:
        ValueError: one is missing, or is not the one of its digest.
        LookupError: the member has a dtype that is not known.
        TypeError: its header is of another form.
    """
    placed: dict[str, torch.Tensor] = {}
    if not written:
        return placed
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = json.loads(content[_LENGTH_BYTES:start])
    for name in in_order(written):
        digest, kind = written[name]
        tensor = _tensor(header[name], content[start:])
        if Content.of(tensor).digest != digest:
            raise ValueError(f"constant {name} is not the one of the key")
        placed[name] = tensor.to(device if kind == device.type else kind)
    return placed


def _tensor(described: Mapping[str, Any], content: bytes) -> torch.Tensor:
    begin, end = described["data_offsets"]
    dtype, shape = DTYPES[described["dtype"]], described["shape"]
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(content[begin:end]), dtype=dtype).reshape(shape)
