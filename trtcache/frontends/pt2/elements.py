"""How a file says what elements a weight has and where they are, and those elements as a tensor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

DTYPES: Mapping[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    13: torch.bfloat16,
    12: torch.bool,
    9: torch.complex32,
    10: torch.complex64,
    11: torch.complex128,
    28: torch.uint16,
    34: torch.uint32,
    35: torch.uint64,
    29: torch.float8_e4m3fn,
    30: torch.float8_e5m2,
    31: torch.float8_e4m3fnuz,
    32: torch.float8_e5m2fnuz,
}
"""``ScalarType`` of torch/_export/serde/schema.py, as far as this reader knows it."""


def device_of(written: Mapping[str, Any]) -> torch.device:
    """Return the device that a file names."""
    kind, index = written["type"], written["index"]
    return torch.device(kind) if index is None else torch.device(kind, index)


def flat(content: memoryview, dtype: torch.dtype) -> torch.Tensor:
    """Return the elements in some bytes: those very bytes where they are aligned, else a copy."""
    count = len(content) // dtype.itemsize
    if not count:
        return torch.empty(0, dtype=dtype)
    tensor = torch.frombuffer(content, dtype=torch.uint8)[: count * dtype.itemsize]
    if tensor.data_ptr() % math.lcm(dtype.itemsize, 16):
        tensor = tensor.clone()
    return tensor.view(dtype)
